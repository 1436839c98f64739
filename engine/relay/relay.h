/*
 * Relays make an agent on another host look to the daemon like one on this host.
 *
 *   daemon == socket, descriptors == near.c == bytes, by any command == far.c == sockets == agent
 *
 * The command (ssh, srun, docker exec…) runs the far relay. dial.c starts it, using launch.c, and
 * bring.c copies the programs there, by bring.sh. link.c carries packets over the command's
 * standard input and output, and after a break over those of its successor, which session.c
 * connects to the relay that is still running on the far side. If the command has little bandwidth,
 * all packets go over a separate connection between the relays, which they negotiate over the
 * command's (offer.c, reach.c). packet.h lists the packets. Descriptors are sent as bytes
 * (outbox, inbox). The agent, which knows that it is away, sends bytes of objects, and what ranks
 * print, on sockets of their own (bulk): the output is kept on the disk there until there is room.
 */
#ifndef RELAY_H
#define RELAY_H

/* ddip-engine relay --host NAME --linger SECONDS --engine auto|PATH [--direct VARIABLE] --
 * COMMAND…: the near relay, with the daemon on descriptors 0 and 1. Returns the exit status. */
int near_main(char **args);
/* ddip-engine far --linger SECONDS, or far --attach DIR: the far relay. */
int far_main(char **args);

#endif
