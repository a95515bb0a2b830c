// Package proc starts helper processes that talk JSON lines over their
// standard input and output, and makes sure that none of them outlives the one
// that started it: a child ends when its standard input closes, also while it is
// busy, and the kernel closes that for a parent that dies in any way.
package proc
