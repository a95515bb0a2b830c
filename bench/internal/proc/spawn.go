package proc

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// loop runs start functions on one locked thread. The thread ends with it, so it
// must not be the main one: that lives as long as the process.
func (s *Spawner) loop() {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		s.serve()
		return
	}
	begun := make(chan struct{})
	go func() {
		runtime.LockOSThread() // another one, as the main thread is ours until then
		close(begun)
		s.serve()
	}()
	<-begun
	runtime.UnlockOSThread()
}

// serve runs start functions until Close.
func (s *Spawner) serve() {
	for {
		select {
		case start := <-s.starts:
			start()
		case <-s.closed:
			return
		}
	}
}

// run calls start on the spawning thread.
func (s *Spawner) run(start func() error) error {
	result := make(chan error, 1)
	select {
	case s.starts <- func() { result <- start() }:
		return <-result
	case <-s.closed:
		return fmt.Errorf("spawner is closed")
	}
}
