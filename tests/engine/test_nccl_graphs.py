#!/usr/bin/env python3
"""NCCL's dump of its graphs becomes the right text."""

import os
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "engine", "ddip_engine", "groups"))

import nccl_graphs  # noqa: E402

VARIABLE = "NCCL_GRAPH_DUMP_FILE"


def graph(number, *channels, **facts):
    facts = {"speedintra": "20", "speedinter": "12.5", "typeintra": "NVL", **facts}
    words = "".join(f' {name}="{value}"' for name, value in facts.items())
    inside = "".join(f"<channel>{nodes}</channel>" for nodes in channels)
    return f'<graph id="{number}" nchannels="{len(channels)}"{words}>{inside}</graph>'


def told(*graphs):
    return nccl_graphs.told(f'<graphs version="1">{"".join(graphs)}</graphs>'.encode())


def gpus(*numbers):
    return "".join(f'<gpu dev="{n:#x}"/>' for n in numbers)


class Told(unittest.TestCase):
    def test_channels_of_one_course_are_one_line(self):
        lines = told(graph(0, gpus(0, 1, 2), gpus(0, 2, 1), gpus(0, 1, 2)))
        self.assertEqual(lines[0], "ring: 3 channels, NVL 20 GB/s")
        self.assertEqual(lines[1:], ["  2 x GPU/0 GPU/1 GPU/2", "  1 x GPU/0 GPU/2 GPU/1"])

    def test_the_network_is_told_where_there_is_one(self):
        net = '<net dev="0x1"/>'
        lines = told(graph(1, net + gpus(3) + net, typeintra="LOC", typeinter="PIX"))
        self.assertEqual(lines[0], "tree: 1 channel, LOC 20 GB/s, between hosts PIX 12.5 GB/s")
        self.assertEqual(lines[1], "  1 x NET/1 GPU/3 NET/1")

    def test_a_gpu_of_another_host_has_its_number(self):
        self.assertEqual(told(graph(3, gpus(2 << 56 | 5)))[1], "  1 x GPU/2-5")

    def test_graphs_without_channels_are_left_out(self):
        self.assertEqual(told(graph(2), graph(9, gpus(0)))[0], "graph 9: 1 channel, NVL 20 GB/s")

    def test_nothing_was_written(self):
        self.assertEqual(nccl_graphs.told(b""), [])

    def test_what_is_no_dump_is_said(self):
        no_number = b"<graphs><graph><channel><gpu/></channel></graph></graphs>"
        for dump in (b"<graphs><graph", b"\xff\xfe", no_number):
            self.assertRegex("".join(nccl_graphs.told(dump)), "^graphs: not read: ")


class Dumped(unittest.TestCase):
    def setUp(self):
        self.addCleanup(os.environ.pop, VARIABLE, None)

    def test_a_program_is_told_where_to_write_and_its_own_file_comes_back(self):
        for before in (None, "/nowhere/graphs.xml"):
            os.environ.pop(VARIABLE, None)
            if before:
                os.environ[VARIABLE] = before
            with nccl_graphs.dumped() as chosen:
                self.assertEqual(chosen(), [])
                with open(os.environ[VARIABLE], "w") as f:
                    f.write(f"<graphs>{graph(0, gpus(0))}</graphs>")
                self.assertEqual(len(chosen()), 2)
            self.assertEqual(os.environ.get(VARIABLE), before)


if __name__ == "__main__":
    unittest.main()
