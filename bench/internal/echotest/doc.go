// Package echotest is a test for every echo server of the benchmark that speaks msgr2.1, in
// this module and in the module of the rivals.
package echotest
