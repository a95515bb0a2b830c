// Package proc starts helper processes that answer calls in JSON over their standard input and
// output. None of them outlives its parent: a child ends when its standard input closes, also
// while it is busy, and the kernel closes it when the parent dies.
package proc
