// Package server holds servers to compare the messenger with: the floor, which echoes bytes
// without decoding them, and a usual Go program on package net.
package server
