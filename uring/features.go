package uring

import "slices"

// Names of the ring's features, as in Info and Config.Off.
const (
	featureSingleIssuer   = "single_issuer"
	featureDeferTaskrun   = "defer_taskrun"
	featureCoopTaskrun    = "coop_taskrun"
	featureSubmitAll      = "submit_all"
	featureNoSQArray      = "no_sqarray"
	featureRegisteredRing = "registered_ring"
	featureFileTable      = "file_table"
	// featureRegisteredBuffers is memory that stays pinned (RegisterMemory).
	featureRegisteredBuffers = "registered_buffers"
	featureCQESkip           = "cqe_skip"
	featureAcceptMulti       = "multishot_accept"
	featureRecvMulti         = "multishot_recv"
	featureBufferRing        = "buffer_ring"
	FeatureIncremental       = "incremental_buffers"
	featureSendZC            = "sendmsg_zc"
	featureReportUsage       = "zc_report_usage"
)

// ringFeatures lists all of them with the kernel that brought them, in the
// order of Info.
func ringFeatures() []Feature {
	return []Feature{
		{Name: featureSingleIssuer, Since: "6.0"},
		{Name: featureDeferTaskrun, Since: "6.1"},
		{Name: featureCoopTaskrun, Since: "5.19"},
		{Name: featureSubmitAll, Since: "5.18"},
		{Name: featureNoSQArray, Since: "6.6"},
		{Name: featureRegisteredRing, Since: "5.18"},
		{Name: featureFileTable, Since: "5.19"},
		{Name: featureRegisteredBuffers, Since: "5.19"},
		{Name: featureCQESkip, Since: "5.17"},
		{Name: featureAcceptMulti, Since: "5.19"},
		{Name: featureRecvMulti, Since: "6.0"},
		{Name: featureBufferRing, Since: "5.19"},
		{Name: FeatureIncremental, Since: "6.12"},
		{Name: featureSendZC, Since: "6.1"},
		{Name: featureReportUsage, Since: "6.2"},
	}
}

// featureSet collects the results of the probes. A feature that was neither switched off
// nor tried yet has no Why.
type featureSet []Feature

const whyOff = "switched off by the configuration"

// newFeatureSet starts with all features unknown, except for those in off.
func newFeatureSet(off []string) featureSet {
	set := featureSet(ringFeatures())
	for i := range set {
		if slices.Contains(off, set[i].Name) {
			set[i].Why = whyOff
		}
	}
	return set
}

func (s featureSet) at(name string) *Feature {
	for i := range s {
		if s[i].Name == name {
			return &s[i]
		}
	}
	return &Feature{}
}

// wanted says whether name is still worth a try.
func (s featureSet) wanted(name string) bool { return s.at(name).Why == "" }

func (s featureSet) have(name string) bool { return s.at(name).Have }

func (s featureSet) found(name string) { s.at(name).Have = true }

func (s featureSet) lacks(name, why string) {
	if f := s.at(name); f.Why == "" {
		f.Have, f.Why = false, why
	}
}
