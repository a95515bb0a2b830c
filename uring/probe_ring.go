//go:build !epoll

package uring

import "runtime"

// probeRing opens a small ring for a moment.
func probeRing(m *Machine, off []string) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d, err := openRing(Config{Entries: 8, Off: off})
	if err != nil {
		m.RingWhy = err.Error()
		return
	}
	info := d.Info()
	m.Ring, m.Receive, m.Features = true, info.Receive, info.Features
	if err := d.CloseDriver(); err != nil {
		m.RingWhy = err.Error()
	}
}
