#!/bin/bash
# A batch job of Slurm that runs a program on all its nodes: sbatch slurm.sh PROGRAM [ARG…]
#SBATCH --job-name=ddip
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --signal=USR1@60

# --ntasks-per-node is how many ranks a node has; with GPUs say so too: --gpus-per-node=4
# --signal: a minute before the end the program meets ddip.Preempted, a KeyboardInterrupt, and can save what it has
[ $# -gt 0 ] || set -- ddp_checkpoint.py --savefile checkpoint.pt
exec ddip run --hosts slurm -o on_preempt=USR1 "$@"
