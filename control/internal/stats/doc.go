// Package stats is what can be seen of a messenger: its statistics (stats.go) and why its
// attempts failed (failure.go), with their texts for people (text.go). It has types and
// pure functions; who counts owns the counters and guards them.
package stats
