package proc

import (
	"fmt"
	"runtime"
)

// loop runs start functions on one locked thread. The thread ends with it.
func (s *Spawner) loop() {
	runtime.LockOSThread()
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
