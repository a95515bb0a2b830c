#!/bin/sh
# Compiles steer.c for both byte orders. The objects go into the folder $1.
set -eu
for order in bpfel bpfeb; do
	# v1 is the oldest instruction set; BTF is made of debug information.
	clang-14 -O2 -mcpu=v1 -nostdinc -Wall -Wextra -Werror -target $order -g -fno-ident \
		"-fdebug-prefix-map=$PWD=." -fdebug-compilation-dir . -c "$PWD/steer.c" -o "$1/steer_$order.o"
	llvm-strip-14 -g "$1/steer_$order.o"
done
