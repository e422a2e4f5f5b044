"""The CUDA target: Triton source to cubins, on any machine, with the wheel's own ptxas."""
