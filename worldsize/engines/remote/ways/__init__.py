"""The ways to get agents onto hosts: programs such as ssh, Slurm, Dask."""
