// Package storage has the servers that the storage benchmark compares: each of them reads
// and durably overwrites blocks of one file, and answers. Blocking and Messenger speak
// msgr2.1; Ring speaks raw requests (package blocks), without frames.
//
// All of them check every block that they read, and every one before they write it.
package storage
