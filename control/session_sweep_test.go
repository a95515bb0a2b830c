package control_test

import ()

// cuts is how many places of a run are tried.
const cuts = 60
