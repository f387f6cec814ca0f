#!/bin/bash
#SBATCH -N 3
weft study run tests/machines/slurm.toml --quick --runtime 1s --ramp-time 300ms --repeats 1 --out docs/gallery/slurm
