package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/cmd/shared/kvformat"
	"github.com/ringmsgr/ringmsgr/uring"
)

const (
	kvSizes      = "100,4KiB,64KiB"
	kvLoads      = "1x1,64x1,16x16"
	kvQuickSizes = "4KiB"
	kvQuickLoads = "64x1,16x16"
	kvSlice      = 200 * time.Millisecond
	// kvKeys and kvQuickKeys are how many keys there are for each size of values, if no load
	// has more requests open.
	kvKeys      = 1024
	kvQuickKeys = 512
)

// The names of key-value servers that others are compared with.
const (
	kvRing = "ringkv"
	kvNet  = "net"
)

// kvVariants lists the key-value servers.
func kvVariants() []variant {
	var list []variant
	if uring.Flavour != uring.Epoll {
		list = append(list, variant{
			name: kvRing, about: "cmd/ringkv, one core, which writes and syncs through its ring", config: serverConfig{Backend: string(uring.IOUring)},
		})
	}
	list = append(list,
		variant{name: "ringkv+epoll", about: "cmd/ringkv over epoll, one core, which has threads for files", config: serverConfig{Backend: string(uring.Epoll)}},
		variant{name: kvNet, about: "package net, a goroutine per connection, the same log under a lock, shared syncs"},
		variant{name: "net+each", detail: true, about: "the same with a sync for each put"})
	for _, r := range child.KVRivals() {
		list = append(list, variant{name: r.Name, about: r.About, rival: true, own: true})
	}
	return list
}

// completeKV fills in the rest of the options of --storage kv. It reports what is wrong.
func (s *storageOptions) completeKV(o *options, f storageFlags, servers, sizes, shapes, mode string) error {
	var errs []error
	of := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag, err))
		}
	}
	for flag, given := range map[string]bool{
		"--storage-size": *f.size != "", "--storage-io": *f.io != "", "--gc-load": o.gcLoad != "off", "--tags-build": o.build, "--mode": mode != child.ModeCRC,
	} {
		if given {
			of(flag, errors.New("is nothing with --storage kv"))
		}
	}
	errs = append(errs, s.findDir())
	usual, usualSizes, usualLoads, slice, keys := usualServers(kvVariants(), o.quick), kvSizes, kvLoads, kvSlice, kvKeys
	if o.quick {
		usualSizes, usualLoads, slice, keys = kvQuickSizes, kvQuickLoads, quickSlice, kvQuickKeys
	}
	var err error
	o.servers, err = chooseServers(kvVariants(), cmp.Or(servers, usual))
	of("--servers", err)
	o.sizes, err = parseList(cmp.Or(sizes, usualSizes), parseSize)
	if err == nil && slices.Max(o.sizes) > kvformat.MaxValue {
		err = fmt.Errorf("values of %d bytes: want %d at most", slices.Max(o.sizes), kvformat.MaxValue)
	}
	of("--sizes", err)
	o.shapes, err = parseList(cmp.Or(shapes, usualLoads), parseShape)
	of("--loads", err)
	s.keys = keys
	for _, shape := range o.shapes {
		s.keys = max(s.keys, shape.conns*shape.depth)
	}
	o.slice = cmp.Or(o.slice, slice)
	o.whats = []string{report.KVPut, report.KVGet}
	if o.base == "" && o.has(kvRing) {
		o.base = kvRing
	}
	return errors.Join(append(errs, o.complete())...)
}

// kvQuestion is what the conclusion of key-value servers answers.
func (o *options) kvQuestion() (subject, rival string) {
	for _, s := range o.servers {
		if strings.HasPrefix(s.name, kvRing) && o.has(kvNet) {
			return s.name, kvNet
		}
	}
	return "", ""
}
