package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// grouped adds up the connections of each peer, in the order of the first of each.
// A peer is told by its name, or by its address as long as it has none.
func grouped(conns []topConn) []topConn {
	var groups []topConn
	place := map[string]int{}
	members := map[string]map[string]int{} // states of each
	for i := range conns {
		c := &conns[i]
		name := c.Entity
		if name == "" {
			name = c.Peer
		}
		at, ok := place[name]
		if !ok {
			at = len(groups)
			place[name] = at
			groups = append(groups, topConn{ID: c.ID, Entity: name, Peer: c.Peer, Policy: c.Policy, Core: c.Core, Intended: c.Intended})
			members[name] = map[string]int{}
		}
		g := &groups[at]
		g.members++
		members[name][c.State]++
		g.topRates.add(c.topRates)
		g.Queued, g.Sent, g.Held = g.Queued+c.Queued, g.Sent+c.Sent, g.Held+c.Held
		g.AckLag, g.Reconnects = g.AckLag+c.AckLag, g.Reconnects+c.Reconnects
		g.Throttled = g.Throttled || c.Throttled
		if g.Error == "" {
			g.Error = c.Error
		}
		if g.Core != c.Core {
			g.Core, g.Intended = severalCores, severalCores
		}
	}
	for i := range groups {
		groups[i].State = statesText(members[groups[i].Entity])
	}
	return groups
}

// severalCores is the core of a group that is on more than one.
const severalCores = -1

// statesText names the only state, or counts them.
func statesText(states map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if len(states) == 1 {
			return name
		}
		parts = append(parts, fmt.Sprintf("%d %s", states[name], name))
	}
	return strings.Join(parts, ", ")
}
