// Package resize adds cores to a messenger and removes cores while connections go on. It has
// the order of the steps, their end by a context, the undoing of a step that fails, and the
// choice of the connections that leave a core. It knows no messenger: a [Resizer] has a
// [Messenger] carry out the steps.
//
//	Add              what the messenger does                  if it fails, or ctx ends meanwhile
//	Lock             waits for others                         nothing has changed
//	Allowed          says whether the cores may change        the same
//	Open             starts the thread of a core              the same
//	Listen           listeners, a place in the steering       the core is removed, as below
//
//	Remove           what the messenger does                  if it fails, or ctx ends meanwhile
//	Lock, Allowed    as above                                 nothing has changed
//	Find, Retire     the core refuses new connections         the same
//	Unsteer          new connections do not come to it        does not fail
//	Evacuate         connections leave it                     does not fail
//	CloseListeners   closes them, or gives them to others     goes on by itself
//	AwaitGone        waits until the core has nothing more    what is left faults; goes on by itself
//
// A core that fails has Unsteer and Evacuate at any moment. Its removal goes on, and ends as
// soon as the core has nothing any more. An addition asks after Listen whether the core has
// failed, and is undone if it has.
//
// A bind or a hand-over, during which the cores must stay as they are, takes the Lock as
// well.
package resize
