package uring

// Names that the tests of the contract need.
const (
	MaxVec                   = maxVec
	FeatureAIO               = featureAIO
	FeatureNoSQArray         = featureNoSQArray
	FeatureFileTable         = featureFileTable
	FeatureRegisteredBuffers = featureRegisteredBuffers
	FeatureRecvMulti         = featureRecvMulti
	FeatureSendZC            = featureSendZC
	FeatureReportUsage       = featureReportUsage
	FeatureSingleIssuer      = featureSingleIssuer
	FeatureDeferTaskrun      = featureDeferTaskrun
	FeatureCoopTaskrun       = featureCoopTaskrun
)
