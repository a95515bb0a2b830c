// Package framed is the network side of a server as a Go programmer writes it with package
// net: a goroutine per connection reads messages of msgr2.1, in crc mode, and answers each.
// What a message asks for is the server's.
package framed
