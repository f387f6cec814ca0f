use super::*;
use weft_reactor::simulation::{NetworkConditions, World};

const BLOCKS: u64 = 64;

fn scene() -> (Reactor, Box<dyn BlockDevice>, MemoryFactory) {
    let mut reactor = Reactor::simulated(&World::new(1, NetworkConditions::default()));
    let factory = MemoryFactory::new(BLOCKS * 4096, 4096).unwrap();
    let device = factory.open(&mut reactor, Owner(1)).unwrap();
    (reactor, device, factory)
}

fn write(reactor: &Reactor, block: u64, byte: u8) -> Operation {
    let mut from = reactor.pool().take(4096).unwrap();
    from.fill(byte);
    Operation::Write { slba: block, nlb: 1, from, durable: false }
}

fn read(reactor: &Reactor, block: u64) -> Operation {
    let mut into = reactor.pool().take(4096).unwrap();
    into.fill(0xee);
    Operation::Read { slba: block, nlb: 1, into }
}

fn done(device: &mut dyn BlockDevice) -> Vec<RequestCompletion> {
    std::iter::from_fn(|| device.poll_completion()).collect()
}

fn tags(completions: &[RequestCompletion]) -> Vec<u64> {
    completions.iter().map(|completion| completion.tag).collect()
}

/// A full batch executes the batch before it; the first request is prefetched alone, and a flush
/// executes all.
#[test]
fn requests_are_executed_in_batches_and_at_the_flush() {
    let (mut reactor, mut device, _factory) = scene();
    let batch = u64::try_from(PREFETCH_BATCH).unwrap();
    for tag in 0..5 * batch + 1 {
        let operation = read(&reactor, tag);
        device.submit(&mut reactor, Request { tag, operation });
        let full = tag % batch == 0 && tag > 0;
        let before = |tag: u64| (tag + 1).saturating_sub(batch);
        let expected = if full { before(tag - batch)..before(tag) } else { 0..0 };
        assert_eq!(tags(&done(&mut *device)), expected.collect::<Vec<_>>(), "after {tag}");
    }
    assert_eq!(device.in_flight(), PREFETCH_BATCH);
    device.flush(&mut reactor);
    assert_eq!(tags(&done(&mut *device)), (4 * batch + 1..5 * batch + 1).collect::<Vec<_>>());
    assert_eq!(device.in_flight(), 0);
}

/// A request of an express queue does not wait for those that are queued, and these stop for what
/// is express after each piece.
#[test]
fn express_requests_come_before_those_that_are_queued() {
    let (mut reactor, mut device, _factory) = scene();
    let long = u32::try_from(PIECE_BYTES / 4096).unwrap();
    for tag in 0..4 {
        let into = reactor.pool().take(PIECE_BYTES).unwrap();
        let operation = Operation::Read { slba: 0, nlb: long, into };
        device.submit(&mut reactor, Request { tag, operation });
    }
    reactor.begin_express();
    let operation = read(&reactor, 1);
    device.submit(&mut reactor, Request { tag: 9, operation });
    device.flush(&mut reactor);
    assert_eq!(tags(&done(&mut *device)), [9], "the others' turn is not this one");
    reactor.end_express();
    let timer = Token::new(Owner(2), 0);
    reactor.set_express_timer(timer, reactor.now());
    for tag in 0..3 {
        device.flush(&mut reactor);
        assert_eq!(tags(&done(&mut *device)), [tag]);
        assert!(device.in_flight() > 0);
    }
    reactor.clear_timer(timer);
    device.flush(&mut reactor);
    assert_eq!(tags(&done(&mut *device)), [3]);
    assert_eq!(device.in_flight(), 0);
}

/// A flush that stops for what is express has completed something: its caller goes on as long as
/// something completes, and no event follows for what is left.
#[test]
fn a_flush_executes_something_even_if_something_express_has_come() {
    let (mut reactor, mut device, _factory) = scene();
    reactor.set_express_timer(Token::new(Owner(2), 0), reactor.now());
    let pair = |reactor: &Reactor| Operation::CompareAndWrite {
        slba: 0,
        nlb: 1,
        compare: reactor.pool().take(4096).unwrap(),
        write: reactor.pool().take(4096).unwrap(),
        durable: false,
    };
    let kinds: [fn(&Reactor) -> Operation; 4] = [
        |reactor| read(reactor, 0),
        |reactor| write(reactor, 0, 0),
        |_| Operation::Flush,
        |_| Operation::Verify { slba: 0, nlb: 1 },
    ];
    for first in kinds.iter().map(|kind| kind(&reactor)).chain([pair(&reactor)]).collect::<Vec<_>>()
    {
        let what = format!("{first:?}");
        let operation = read(&reactor, 1);
        device.submit(&mut reactor, Request { tag: 0, operation: first });
        device.submit(&mut reactor, Request { tag: 1, operation });
        while device.in_flight() > 0 {
            device.flush(&mut reactor);
            assert!(!done(&mut *device).is_empty(), "{what}");
        }
    }
}

/// Writes and reads of one block in one turn are executed in the order of submission.
#[test]
fn requests_of_a_turn_are_executed_in_order() {
    for count in [1, 3, PREFETCH_BATCH, PREFETCH_BATCH + 1, 5 * PREFETCH_BATCH] {
        let (mut reactor, mut device, _factory) = scene();
        let mut completions = Vec::new();
        for round in 0..count {
            let (byte, tag) = (u8::try_from(round).unwrap(), round as u64);
            let operation = write(&reactor, 7, byte);
            device.submit(&mut reactor, Request { tag: 2 * tag, operation });
            let operation = read(&reactor, 7);
            device.submit(&mut reactor, Request { tag: 2 * tag + 1, operation });
        }
        device.flush(&mut reactor);
        completions.extend(done(&mut *device));
        assert_eq!(tags(&completions), (0..2 * count as u64).collect::<Vec<_>>());
        for (completion, round) in completions.iter().skip(1).step_by(2).zip(0u8..) {
            let bytes = completion.buffer.as_deref().unwrap();
            assert!(bytes.iter().all(|byte| *byte == round), "{round} of {count}");
        }
    }
}

/// The hinted request may follow, or another, or none; a hint may be out of range.
#[test]
fn a_prefetch_hint_changes_no_result() {
    let (mut reactor, mut device, factory) = scene();
    let operation = write(&reactor, 3, 7);
    device.submit(&mut reactor, Request { tag: 0, operation });
    device.prefetch_hint(3, 1);
    device.flush(&mut reactor);
    assert_eq!(tags(&done(&mut *device)), [0]);
    let far = [(u64::MAX, 1), (u64::MAX / 4096, u32::MAX), (BLOCKS, 1), (BLOCKS - 1, 2), (3, 0)];
    for (block, blocks) in far.into_iter().chain([(3, 1), (4, 1), (3, 2), (0, 64)]) {
        device.prefetch_hint(block, blocks);
        let operation = read(&reactor, 3);
        device.submit(&mut reactor, Request { tag: 1, operation });
        device.flush(&mut reactor);
        let completions = done(&mut *device);
        let bytes = completions[0].buffer.as_deref().unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7), "after {blocks} blocks from {block} on");
    }
    factory.resize(4096).unwrap();
    device.prefetch_hint(3, 1);
    device.close(&mut reactor);
    device.prefetch_hint(0, 1);
    assert_eq!(device.in_flight(), 0);
}

#[test]
fn requests_that_are_queued_when_the_device_closes_are_not_executed() {
    let (mut reactor, mut device, factory) = scene();
    let operation = write(&reactor, 3, 9);
    device.submit(&mut reactor, Request { tag: 1, operation });
    device.close(&mut reactor);
    device.flush(&mut reactor);
    let completions = done(&mut *device);
    assert_eq!(tags(&completions), [1]);
    assert_eq!(completions[0].result, Err(Failure::Gone));
    assert!(completions[0].buffer.is_some(), "its buffer comes back");
    let mut again = factory.open(&mut reactor, Owner(2)).unwrap();
    let operation = read(&reactor, 3);
    again.submit(&mut reactor, Request { tag: 2, operation });
    again.flush(&mut reactor);
    let found = done(&mut *again);
    assert!(found[0].buffer.as_deref().unwrap().iter().all(|byte| *byte == 0));
}
