package main

import "strings"

// topRemembered is how many intervals a curve can show.
const topRemembered = 64

// topHistory remembers messages per second. It belongs to the live view.
type topHistory struct {
	total []float64
	cores map[int][]float64
	conns map[uint64][]float64
}

// add takes the rates of the frame, and forgets who is not in it.
func (h *topHistory) add(f *topFrame) {
	push := func(old []float64, r topRates) []float64 {
		return append(old[max(0, len(old)-topRemembered+1):], r.In+r.Out)
	}
	h.total = push(h.total, f.Total)
	cores, conns := h.cores, h.conns
	h.cores, h.conns = make(map[int][]float64, len(f.Cores)), make(map[uint64][]float64, len(f.Conns))
	for i := range f.Cores {
		c := &f.Cores[i]
		h.cores[c.Core] = push(cores[c.Core], c.topRates)
	}
	for i := range f.Conns {
		c := &f.Conns[i]
		h.conns[c.ID] = push(conns[c.ID], c.topRates)
	}
}

// curve draws the last values as bars from 0 to the greatest of them.
func curve(values []float64, width int) string {
	values = values[max(0, len(values)-width):]
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	bars := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", max(0, width-len(values))))
	for _, v := range values {
		n := 0
		if most > 0 {
			n = int(v / most * float64(len(bars)-1))
		}
		b.WriteRune(bars[n])
	}
	return b.String()
}
