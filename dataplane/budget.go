package dataplane

// This table has every wait for memory, and the event that ends it.
//
//	waits                              for                              freed by
//	a connection that reads            the receive budget (Throttles)   the user, by Release or Send
//	an unfinished message              the receive budget               as above; else one message goes on (Throttle.finisher),
//	                                                                    and its peer, by its bytes, or the least rate (progress.go)
//	the user                           the sending queue (Room)         lossy: the write; lossless: the peer's ack
//	a read of a file for a reply       the memory for reads             a buffer that comes back: of a reply that was written (lossy), that
//	                                   (Config.FileBytes)               the peer has acknowledged (lossless), or whose connection has ended:
//	                                                                    at the latest by the least rate (lossy, checkWrite)
//	a request behind that, if lossy    the read (ReadReply holds)       as above
//	a request behind that, if lossless the receive budget               the read, which lets go of the request before
//	a write                            the peer                         the peer's reading
//	a peer's ack                       our reading of what is before    the receive budget
//
// A reply from a file waits only for its write: its memory counts as memory for reads until
// the end, and the sending queue takes it whatever its bounds (Message.BoundElsewhere). So
// the memory for reads waits for neither the sending queue nor the receive budget of a lossy
// connection. While a read waits, a lossy connection is not read from. A lossless connection
// is, as acks free that memory: its requests are retained meanwhile, and the receive budget
// bounds them. A peer that takes no replies holds at most a quarter of the memory
// (loop.Account), which is freed with its connection. Peers that together hold all of it
// leave the others their shares, and larger reads of the others wait. Meanwhile a lossy
// connection ends whose peer takes its replies more slowly than the least rate
// (Handler.Wanted), which frees its memory. A lossless session keeps its replies after the
// end of its socket, so its sockets are left alone: an ack frees the replies, or the end of
// the session (MarkDown; StandbyAge and MaxStandby of package control).
//
// The last line closes a cycle: an ack can come after bytes that a full receive budget does
// not let us read, while the user waits for that ack and keeps received messages. Three rules
// break the cycle.
//
//   - A received message that is queued for sending counts against the sending queue,
//     not against the receive budget: a user who sends it back or on frees the budget.
//   - Each connection has a share of the receive budget and of the sending budget that
//     others cannot take (Throttles.Share, SendBudget): small messages pass, whatever the
//     others hold. The shares come out of a reserve, a quarter of the budget on top of it.
//     If more connections keep their shares than the reserve has room for, the next rule
//     is left.
//   - On a lossless session the reconnect tells both sides the last message that the other
//     has received. A connection that is stopped for long while its own messages wait for
//     an ack gives its socket up (progress.go): the reconnect frees the messages that the
//     peer has.
//
// On a lossy session nothing waits for an ack, so there is no such cycle.
//
// The memory of a compressed message is known only after its decompression. It waits, whole,
// while other messages hold more than the receive budget, which the user frees. So the
// memory of received messages is bounded by the budget, its reserve, one unfinished message,
// and one message for each core.
//
// One cycle belongs to the users, and no messenger can break it: two users send each other
// requests, and each keeps a request until there is room to send the answer, after all of its
// own requests. Users have to leave room for answers, by a bound on the number of requests
// under way.
