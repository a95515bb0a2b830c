package main

import (
	"time"

	"google.golang.org/grpc"
)

// streamer keeps the requests of a stream open.
type streamer struct {
	l      *grpcLoad
	stream grpc.ClientStream
	numbers
}

func newStreamer(l *grpcLoad, s grpc.ClientStream, index int) *streamer {
	return &streamer{l: l, stream: s, numbers: newNumbers(index)}
}

// run receives beside another goroutine that sends: a request that waits for the window
// of the stream must not hold up the replies that would open it.
func (s *streamer) run(stop <-chan struct{}) error {
	depth := s.l.opt.Depth
	due := make(chan time.Duration, depth) // when each request to be sent was issued
	for range depth {
		due <- s.l.now()
	}
	sent := make(chan time.Duration, depth) // of the open requests
	failed := make(chan error, 1)
	go func() {
		defer close(sent)
		failed <- s.send(due, sent, stop)
	}()
	n := 0
	for issued := range sent {
		var reply message
		if err := s.stream.RecvMsg(&reply); err != nil {
			return err
		}
		now := s.l.now()
		if err := s.check(&reply, s.l.payload); err != nil {
			return err
		}
		n++
		s.l.answered(now, issued, n)
		due <- now // has room: this one is no longer open
	}
	return <-failed
}

// send sends due requests, until stop closes: then it takes back requests that were not begun.
func (s *streamer) send(due <-chan time.Duration, sent chan<- time.Duration, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		select {
		case <-stop:
			return nil
		case issued := <-due:
			request := s.request(s.l.payload)
			if err := s.stream.SendMsg(&request); err != nil {
				return err
			}
			sent <- issued
		}
	}
}
