// Package proc starts helper processes that talk JSON lines over their
// standard input and output, and makes sure that none of them outlives the one
// that started it: a child ends when its standard input closes, which the
// kernel does for a parent that dies in any way, and is killed by the kernel
// when the parent dies while it is stopped or spinning.
package proc
