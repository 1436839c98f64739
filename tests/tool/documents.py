"""Runs the commands of a document and compares their output with what the document says.

usage: documents.py DOCUMENT…   in a directory of its own, with the environment that a reader has

In a manual page a session is a display whose first line begins with `$ `: commands follow `$ `,
their continuation lines `> `, then comes their output. A display that begins with `# NAME.py:` is a
file that the reader saves. In Markdown a session is a block ```sh, in which `# → TEXT` after a
command is its output. `...` stands for anything. A page shows all output of a command; a command
without a word about its output must end with status 0.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
from typing import NamedTuple

HANG_LIMIT_S = int(os.environ.get("HANG_LIMIT_S", "120"))
# How mdoc writes what a reader sees as one character.
ESCAPES = {r"\e": "\\", r"\\": "\\", r"\&": "", r"\-": "-", r"\(aq": "'"}


class Step(NamedTuple):
    """A command and its output according to the document; None: the document does not say."""

    line: int
    command: str
    expected: str | None


def displays(text):
    """Each literal display of a manual page: (number of the line before it, its lines)."""
    for match in re.finditer(r"^\.Bd -literal[^\n]*\n(.*?)^\.Ed$", text, re.S | re.M):
        lines = re.sub(r"\\(?:\(aq|.)", lambda m: ESCAPES[m[0]], match[1]).splitlines()
        yield text.count("\n", 0, match.start(1)), lines


def page_steps(text):
    """The steps of a page; one that saves a file is a command, too."""
    for before, lines in displays(text):
        if file := re.match(r"# (\w+\.py): ", lines[0]):
            quoted = "\n".join(lines)
            yield Step(before + 1, f"cat > {file[1]} <<'END OF FILE'\n{quoted}\nEND OF FILE", None)
        elif lines[0].startswith("$ "):
            yield from session_steps(before, lines)


def session_steps(before, lines):
    """The steps in one display."""
    steps = []
    for number, line in enumerate(lines, before + 1):
        if line.startswith("$ "):
            steps.append([number, line[2:], []])
        elif line.startswith("> "):
            steps[-1][1] += "\n" + line[2:]
        else:
            steps[-1][2].append(line)
    return [Step(number, command, "\n".join(said)) for number, command, said in steps]


def markdown_steps(text):
    """The steps in the ```sh blocks of a Markdown file."""
    for match in re.finditer(r"^```sh\n(.*?)^```$", text, re.S | re.M):
        number, command = text.count("\n", 0, match.start(1)), ""
        for line in match[1].splitlines():
            number += 1
            command += line + "\n"
            here = re.search(r"<<'?(\w+)'?", command)
            if not command.strip() or (here and not command.endswith(f"\n{here[1]}\n")):
                continue
            typed, arrow, said = command.partition("# → ")
            yield Step(number, typed.strip() if arrow else command, said.strip() if arrow else None)
            command = ""


# Each command runs in the shell that the commands before it have left; $0 is where results go.
LOOP = """
for __command; do
	eval "$__command" </dev/null >"$0/$((++__number)).out" 2>&1
	echo $? >"$0/$__number.status"
done
"""


def wait_for(shell, folder):
    """Waits for the shell; kills it once no command of it has ended for HANG_LIMIT_S."""
    ended = -1
    while (now := len(list(folder.glob("*.status")))) > ended:
        ended = now
        try:
            shell.wait(HANG_LIMIT_S)
            return
        except subprocess.TimeoutExpired:
            continue
    os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()


def outcomes(steps):
    """Runs them in one shell. Yields (step, status, output); status is None if it does not end."""
    with tempfile.TemporaryDirectory() as folder:
        commands = [step.command for step in steps]
        shell = subprocess.Popen(["bash", "-c", LOOP, folder, *commands], start_new_session=True)
        wait_for(shell, pathlib.Path(folder))
        for number, step in enumerate(steps, 1):
            ended = pathlib.Path(folder, f"{number}.status")
            status = int(ended.read_text()) if ended.exists() else None
            yield step, status, pathlib.Path(folder, f"{number}.out").read_text()
            if status is None:
                return


def is_as_said(step, status, output):
    """Does the outcome agree with the document?"""
    if not step.expected:
        return status == 0 and (step.expected is None or not output)
    said = output.rstrip("\n")
    if " -a " in step.command:  # the ranks' lines, in order of arrival
        said = "\n".join(sorted(said.splitlines()))
    pattern = ".*".join(re.escape(part) for part in step.expected.split("..."))
    return status is not None and bool(re.fullmatch(pattern, said, re.S))


def main():
    failed = 0
    for path in sys.argv[1:]:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        steps = list((markdown_steps if path.endswith(".md") else page_steps)(text))
        if not steps:
            sys.exit(f"{path}: no command was found")
        for step, status, output in outcomes(steps):
            if not is_as_said(step, status, output):
                failed += 1
                print(f"{path}:{step.line}: {step.command}\nsays: {step.expected}")
                print(f"status {status}: {output}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
