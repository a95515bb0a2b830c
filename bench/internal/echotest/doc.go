// Package echotest is what a test holds every echo server of the benchmark against that
// speaks msgr2.1, in this module and in that of the rivals.
package echotest
