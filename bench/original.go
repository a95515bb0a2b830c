package main

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringmsgr/ringmsgr/bench/internal/child"
	"github.com/ringmsgr/ringmsgr/bench/internal/original"
	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
	"github.com/ringmsgr/ringmsgr/bench/internal/report"
	"github.com/ringmsgr/ringmsgr/control"
)

// asClient begins the operations of --original in which clients are compared.
const asClient = "client, "

// originalWhats are the operations of --original: which side is compared, by which protocol.
var originalWhats = []string{"server, msgr2", asClient + "msgr2", "server, " + control.Msgr1, asClient + control.Msgr1}

// originalVariants lists the variants of --original, in each operation.
func originalVariants(releases []original.Release) (list []variant) {
	for _, r := range releases {
		list = append(list, variant{name: r.Version, about: "Ceph " + r.Version + ", its own messenger", original: r.Dir})
	}
	for _, v := range messengerVariants() {
		if v.name == v.config.Backend {
			v.original = v.name
			list = append(list, v)
		}
	}
	return list
}

// startOriginals starts a server and a client for each variant and operation: the variant is
// one of them, and the other side is of the first release.
func (r *runner) startOriginals(ctx context.Context, exe string, v variant) error {
	for _, what := range r.opt.whats {
		server, client := v.original, r.opt.releases[0].Dir
		if strings.HasPrefix(what, asClient) {
			server, client = client, server
		}
		t := &target{variant: v, what: what}
		t.msgr1 = strings.HasSuffix(what, control.Msgr1)
		var err error
		spec := child.Spec{Name: v.name, Original: server, Msgr1: t.msgr1}
		if t.child, err = proc.Start(ctx, "server of "+v.name, exe, spec.Args(), r.stderr, &t.hello); err != nil {
			return err
		}
		r.targets = append(r.targets, t)
		t.pid = cmp.Or(t.hello.PID, t.child.PID())
		spec = child.Spec{Client: true, Original: client}
		if t.client, err = proc.Start(ctx, "client of "+v.name, exe, spec.Args(), r.stderr, nil); err != nil {
			return err
		}
	}
	r.file.Servers = append(r.file.Servers, report.Server{Name: v.name, About: v.about})
	return nil
}

// in lists the servers of a cell.
func (r *runner) in(l report.Load) []*target {
	return slices.DeleteFunc(slices.Clone(r.targets), func(t *target) bool { return t.what != "" && t.what != l.What })
}

// compared is the process that is measured.
func (t *target) compared() int {
	if strings.HasPrefix(t.what, asClient) {
		return t.client.PID()
	}
	return t.pid
}

// fills reports whether slices are the difference to a run that only fills the queue: slices of
// Ceph's client are.
func (t *target) fills() bool {
	return t.what != "" && (filepath.IsAbs(t.original) || !strings.HasPrefix(t.what, asClient))
}
