# a kernel
