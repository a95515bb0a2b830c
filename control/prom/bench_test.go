package prom_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// BenchmarkMetrics measures what metrics cost a server: the CPU time of its whole process
// for each request, with metrics against without. Two processes, alike but for the metrics,
// answer in short slices that take turns, so that what else the machine does meets both. After
// one round of slices two new processes take over, so that where the memory of one happens to
// lie does not count.
//
// cost-percent is the median of the rounds; from-percent and to-percent are the bounds of its
// 95 % confidence interval, by resampling. "nothing" compares two that are alike: its interval
// has to contain 0, and its width is what this measurement can tell.
//
//	go test -run '^$' -bench Metrics -benchtime 40x
//
// takes two minutes for each kind. The less else the machine does, the fewer rounds will do.
func BenchmarkMetrics(b *testing.B) {
	for _, kind := range []metrics{
		{Name: "nothing"},
		{Name: "histograms", Histograms: true},
		{Name: "labels", Labels: true},
		{Name: "hooks", Hooks: true},
		{Name: "collector", Scraped: true},
		{Name: "all", Histograms: true, Labels: true, Scraped: true},
	} {
		b.Run(kind.Name, func(b *testing.B) {
			var costs, each, scrapes []float64
			for b.Loop() {
				without, with := round(b, kind)
				costs = append(costs, 100*(with.cost()/without.cost()-1))
				each = append(each, without.cost())
				scrapes = append(scrapes, float64(with.scraping.Microseconds()))
			}
			low, high := interval(costs)
			b.ReportMetric(quantile(costs, 0.5), "cost-percent")
			b.ReportMetric(low, "from-percent")
			b.ReportMetric(high, "to-percent")
			b.ReportMetric(quantile(each, 0.5), "cpu-ns/request")
			if kind.Scraped {
				b.ReportMetric(quantile(scrapes, 0.5), "cpu-us/scrape")
			}
			b.ReportMetric(0, "ns/op") // of a whole round says nothing
		})
	}
}

// metrics are those that a server has.
type metrics struct {
	Name string
	// Histograms has latencies measured as they are by default; else none is.
	Histograms bool
	// Labels names the server's threads for pprof.
	Labels bool
	// Hooks has each reply followed, as a tracer does.
	Hooks bool
	// Scraped has the server asked for its metrics over HTTP, once in each second of load.
	Scraped bool
}

const (
	slice = 10 * time.Millisecond
	pairs = 100 // of slices in a round: each server has a second of load
)

// round measures two new servers.
func round(b *testing.B, kind metrics) (without, with *metered) {
	servers := [2]*metered{startMetered(b, metrics{}), startMetered(b, kind)}
	for _, s := range servers {
		defer s.end(b)
		s.warm(b)
	}
	for i := range pairs {
		for turn := range 2 {
			s := servers[(i+turn)%2] // neither is always the first
			if s == servers[1] && kind.Scraped && i == pairs/2 {
				s.workScraped(b)
			} else {
				s.work(b)
			}
		}
	}
	return servers[0], servers[1]
}

// quantile returns the value below which a part of values lies.
func quantile(values []float64, part float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(part*float64(len(sorted)-1)+0.5)]
}

// interval returns between which bounds the median lies in 95 of 100 cases, as far as values
// tell: by the medians of samples that are drawn from them.
func interval(values []float64) (low, high float64) {
	random := rand.New(rand.NewPCG(1, 1))
	medians := make([]float64, 2000)
	sample := make([]float64, len(values))
	for i := range medians {
		for j := range sample {
			sample[j] = values[random.IntN(len(values))]
		}
		medians[i] = quantile(sample, 0.5)
	}
	return quantile(medians, 0.025), quantile(medians, 0.975)
}
