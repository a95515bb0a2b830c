// Package ordered puts numbered items back into their order. Two sides that live
// on different cores tell each other things by way of more than one queue, so
// that what was sent later can come earlier; the sender numbers what it sends,
// and the receiver has a [Queue].
package ordered
