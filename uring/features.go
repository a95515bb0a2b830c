package uring

import "slices"

// Names of the ring's features, as in Info and Config.Off.
const (
	FeatureSingleIssuer   = "single_issuer"
	FeatureDeferTaskrun   = "defer_taskrun"
	FeatureCoopTaskrun    = "coop_taskrun"
	FeatureSubmitAll      = "submit_all"
	FeatureNoSQArray      = "no_sqarray"
	FeatureRegisteredRing = "registered_ring"
	FeatureExtArg         = "ext_arg_timeout"
	FeatureFileTable      = "file_table"
	// FeatureRegisteredBuffers is memory that stays pinned (RegisterMemory).
	FeatureRegisteredBuffers = "registered_buffers"
	FeatureCQESkip           = "cqe_skip"
	FeatureAcceptMulti       = "multishot_accept"
	FeatureRecvMulti         = "multishot_recv"
	FeatureBufferRing        = "buffer_ring"
	FeatureIncremental       = "incremental_buffers"
	FeatureSendZC            = "sendmsg_zc"
	FeatureReportUsage       = "zc_report_usage"
)

// ringFeatures lists all of them with the kernel that brought them, in the
// order of Info.
func ringFeatures() []Feature {
	return []Feature{
		{Name: FeatureSingleIssuer, Since: "6.0"},
		{Name: FeatureDeferTaskrun, Since: "6.1"},
		{Name: FeatureCoopTaskrun, Since: "5.19"},
		{Name: FeatureSubmitAll, Since: "5.18"},
		{Name: FeatureNoSQArray, Since: "6.6"},
		{Name: FeatureRegisteredRing, Since: "5.18"},
		{Name: FeatureExtArg, Since: "5.11"},
		{Name: FeatureFileTable, Since: "5.19"},
		{Name: FeatureRegisteredBuffers, Since: "5.19"},
		{Name: FeatureCQESkip, Since: "5.17"},
		{Name: FeatureAcceptMulti, Since: "5.19"},
		{Name: FeatureRecvMulti, Since: "6.0"},
		{Name: FeatureBufferRing, Since: "5.19"},
		{Name: FeatureIncremental, Since: "6.12"},
		{Name: FeatureSendZC, Since: "6.1"},
		{Name: FeatureReportUsage, Since: "6.2"},
	}
}

// featureSet collects what was found. A feature that was neither switched off
// nor tried yet has no Why.
type featureSet []Feature

const whyOff = "switched off by the configuration"

// newFeatureSet starts with everything unknown but what off names.
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
