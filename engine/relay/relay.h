/*
 * Relays: how an agent on another host looks to the daemon like one on this host.
 *
 *   daemon == socket, descriptors == near.c == bytes, by any command == far.c == socket == agent
 *
 * The command (ssh, srun, docker exec…) runs the far relay; dial.c starts it, by launch.c,
 * bring.c brings the programs along. link.c carries packets over its standard input and
 * output, and over those of the next one when it breaks; session.c is how that one finds the relay
 * that lives on over there. Where the command carries little, all packets go by a connection of the
 * relays' own, which is offered by the command's (offer.c, reach.c, proof.c). What packets there
 * are is in packet.h. Descriptors go as bytes (outbox, inbox), objects in memory are read over
 * there (fetch), or ranges of them (reads, parts), those over several ranks made there (combine),
 * what ranks print is kept on the disk over there until it is here (follow, arrival). places.c
 * translates directories.
 */
#ifndef RELAY_H
#define RELAY_H

/* ddip-engine relay --host NAME --linger SECONDS --engine auto|PATH [--direct VARIABLE] --
 * COMMAND…: the near one, with the daemon on descriptors 0 and 1. The exit status. */
int near_main(char **args);
/* ddip-engine far --linger SECONDS, or far --attach DIR: the far one. */
int far_main(char **args);

#endif
