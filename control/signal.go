package control

import "sync/atomic"

// signal is sent once. Its channel is made when somebody first asks for it: most
// connections end without. Any goroutine.
type signal struct{ ch atomic.Pointer[chan struct{}] }

// sent returns a channel that closes when the signal is sent.
func (s *signal) sent() <-chan struct{} { return *s.channel() }

// send sends the signal. It may be called once.
func (s *signal) send() { close(*s.channel()) }

func (s *signal) channel() *chan struct{} {
	if ch := s.ch.Load(); ch != nil {
		return ch
	}
	made := make(chan struct{})
	s.ch.CompareAndSwap(nil, &made) // or another one was faster
	return s.ch.Load()
}
