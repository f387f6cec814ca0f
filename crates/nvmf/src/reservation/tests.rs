use std::sync::Arc;

use super::*;
use crate::limits::REGISTRANTS_MAX;

const A: HostId = [0xa; 16];
const B: HostId = [0xb; 16];
const C: HostId = [0xc; 16];

use ReservationType as Type;

/// Key of each host: its first byte.
fn key(host: HostId) -> u64 {
    host[0].into()
}

fn register(action: RegisterAction, current: u64, new: u64) -> Request {
    let operation = Operation::Register { action, ignore_existing_key: false, persist: None };
    Request { operation, current, other: new }
}

fn acquire(action: AcquireAction, kind: Type, current: u64, preempted: u64) -> Request {
    Request { operation: Operation::Acquire { action, kind }, current, other: preempted }
}

fn release(action: ReleaseAction, kind: Type, current: u64) -> Request {
    Request { operation: Operation::Release { action, kind }, current, other: 0 }
}

/// Carries a request out as the target does: on a copy.
fn run(
    state: &mut Reservations,
    host: HostId,
    request: &Request,
) -> Result<Vec<(HostId, NoticeKind)>, Status> {
    let mut after = state.clone();
    let notices = after.apply(host, request, false)?;
    *state = after;
    Ok(notices.into_iter().map(|notice| (notice.host, notice.kind)).collect())
}

fn all_registered() -> Reservations {
    let mut state = Reservations::default();
    for host in [A, B, C] {
        let request = register(RegisterAction::REGISTER, 0, key(host));
        assert_eq!(run(&mut state, host, &request), Ok(vec![]));
    }
    state
}

fn held_by_a(kind: Type) -> Reservations {
    let mut state = all_registered();
    let request = acquire(AcquireAction::ACQUIRE, kind, key(A), 0);
    assert_eq!(run(&mut state, A, &request), Ok(vec![]));
    state
}

fn all_types() -> impl Iterator<Item = Type> {
    (1..=6).map(ReservationType)
}

/// The table of the specification: holder, another registrant, a host that is not registered.
#[test]
fn each_type_refuses_what_it_reserves() {
    let (none, writes, all) = (Refusals::NONE, Refusals::WRITES, Refusals::ALL);
    for (kind, expected) in [
        (Type::WRITE_EXCLUSIVE, [none, writes, writes]),
        (Type::EXCLUSIVE_ACCESS, [none, all, all]),
        (Type::WRITE_EXCLUSIVE_REGISTRANTS_ONLY, [none, none, writes]),
        (Type::EXCLUSIVE_ACCESS_REGISTRANTS_ONLY, [none, none, all]),
        (Type::WRITE_EXCLUSIVE_ALL_REGISTRANTS, [none, none, writes]),
        (Type::EXCLUSIVE_ACCESS_ALL_REGISTRANTS, [none, none, all]),
    ] {
        let state = held_by_a(kind);
        let found = [A, B, [9; 16]].map(|host| state.refused_to(&host));
        assert_eq!(found, expected, "{kind}");
    }
    assert_eq!(all_registered().refused_to(&[9; 16]), none, "nothing is reserved");
}

#[test]
fn registering_needs_the_right_key() {
    let mut state = all_registered();
    let mut said = |request: Request| run(&mut state, A, &request);
    assert_eq!(said(register(RegisterAction::REGISTER, 0, key(A))), Ok(vec![]), "the same again");
    assert_eq!(said(register(RegisterAction::REGISTER, key(A), 7)), Err(CONFLICT));
    assert_eq!(said(register(RegisterAction::REPLACE, 6, 7)), Err(CONFLICT));
    assert_eq!(said(register(RegisterAction::REPLACE, key(A), 7)), Ok(vec![]));
    assert_eq!(said(register(RegisterAction::UNREGISTER, key(A), 0)), Err(CONFLICT));
    let any = |action| Request {
        operation: Operation::Register { action, ignore_existing_key: true, persist: None },
        current: 1,
        other: 8,
    };
    assert_eq!(said(any(RegisterAction::REPLACE)), Ok(vec![]));
    assert_eq!(said(any(RegisterAction::UNREGISTER)), Ok(vec![]));
    assert_eq!(said(any(RegisterAction::UNREGISTER)), Err(CONFLICT), "not registered any more");
    assert_eq!(said(any(RegisterAction::REPLACE)), Err(CONFLICT));
    for request in [
        acquire(AcquireAction::ACQUIRE, Type::WRITE_EXCLUSIVE, 8, 0),
        release(ReleaseAction::CLEAR, Type::NONE, 8),
    ] {
        assert_eq!(said(request), Err(CONFLICT), "only registrants");
    }
    let nobody = register(RegisterAction::REGISTER, 0, 1);
    let status = Status::HOST_ID_NOT_INITIALIZED.with_dnr();
    assert_eq!(run(&mut state, [0; 16], &nobody), Err(status));
}

#[test]
fn what_is_held_is_acquired_by_nobody_else() {
    for kind in all_types() {
        let mut state = held_by_a(kind);
        let ask = |kind, host| acquire(AcquireAction::ACQUIRE, kind, key(host), 0);
        assert_eq!(run(&mut state, A, &ask(kind, A)), Ok(vec![]), "again");
        let other = ReservationType(kind.0 % 6 + 1);
        assert_eq!(run(&mut state, A, &ask(other, A)), Err(CONFLICT), "another type");
        let expected = if kind.is_of_all_registrants() { Ok(vec![]) } else { Err(CONFLICT) };
        assert_eq!(run(&mut state, B, &ask(kind, B)), expected, "{kind}");
    }
}

#[test]
fn a_release_is_told_to_those_who_shared_it() {
    for kind in all_types() {
        let told = [B, C].map(|host| (host, NoticeKind::RESERVATION_RELEASED)).to_vec();
        let shared = if kind.is_of_holder() { vec![] } else { told.clone() };
        let mut state = held_by_a(kind);
        let other = ReservationType(kind.0 % 6 + 1);
        let ask = |kind| release(ReleaseAction::RELEASE, kind, key(A));
        assert_eq!(run(&mut state, A, &ask(other)), Err(FIELD), "another type");
        assert_eq!(run(&mut state, A, &ask(kind)), Ok(shared), "{kind}");
        assert_eq!(state.held(), None);
        assert_eq!(run(&mut state, A, &ask(kind)), Ok(vec![]), "nothing is held");
        // A holder that unregisters releases, too, unless the others hold it as well.
        let mut state = held_by_a(kind);
        let gone = register(RegisterAction::UNREGISTER, key(A), 0);
        let (expected, kept) = match kind {
            _ if kind.is_of_all_registrants() => (vec![], Some(B)),
            _ if kind.is_of_holder() => (vec![], None),
            _ => (told, None),
        };
        assert_eq!(run(&mut state, A, &gone), Ok(expected), "{kind}");
        assert_eq!(state.held().map(|held| held.holder), kept);
    }
    let mut state = held_by_a(Type::WRITE_EXCLUSIVE);
    let others = release(ReleaseAction::RELEASE, Type::WRITE_EXCLUSIVE, key(B));
    assert_eq!(run(&mut state, B, &others), Ok(vec![]));
    assert!(state.held().is_some(), "only its holder releases it");
}

#[test]
fn a_preempted_holder_is_unregistered_and_told() {
    let taken = NoticeKind::REGISTRATION_PREEMPTED;
    for kind in all_types().filter(|kind| !kind.is_of_all_registrants()) {
        for action in [AcquireAction::PREEMPT, AcquireAction::PREEMPT_AND_ABORT] {
            let mut state = held_by_a(kind);
            let request = acquire(action, kind, key(B), key(A));
            assert_eq!(run(&mut state, B, &request), Ok(vec![(A, taken)]));
            assert_eq!(state.held(), Some(CurrentReservation { kind, holder: B }));
            assert!(!state.registrants().contains_key(&A));
            // The type changes: those who stay are told as well.
            let other = ReservationType(kind.0 % 6 + 1);
            let request = acquire(action, other, key(C), key(B));
            assert_eq!(run(&mut state, C, &request), Ok(vec![(B, taken)]), "nobody else stays");
        }
        let mut state = held_by_a(kind);
        let zero = acquire(AcquireAction::PREEMPT, kind, key(B), 0);
        assert_eq!(run(&mut state, B, &zero), Err(FIELD));
        let unknown = acquire(AcquireAction::PREEMPT, kind, key(B), 99);
        assert_eq!(run(&mut state, B, &unknown), Err(CONFLICT));
        // A registrant that does not hold it only loses its registration.
        let third = acquire(AcquireAction::PREEMPT, kind, key(B), key(C));
        assert_eq!(run(&mut state, B, &third), Ok(vec![(C, taken)]));
        assert_eq!(state.held(), Some(CurrentReservation { kind, holder: A }));
        // A holder changes the type of its own reservation.
        let other = ReservationType(kind.0 % 6 + 1);
        let own = acquire(AcquireAction::PREEMPT, other, key(A), key(A));
        let released = NoticeKind::RESERVATION_RELEASED;
        assert_eq!(run(&mut state, A, &own), Ok(vec![(B, released)]));
        assert_eq!(state.held(), Some(CurrentReservation { kind: other, holder: A }));
    }
}

#[test]
fn what_all_registrants_hold_is_preempted_by_the_key_zero() {
    let taken = NoticeKind::REGISTRATION_PREEMPTED;
    for kind in all_types().filter(|kind| kind.is_of_all_registrants()) {
        let mut state = held_by_a(kind);
        let one = acquire(AcquireAction::PREEMPT, kind, key(B), key(A));
        assert_eq!(run(&mut state, B, &one), Ok(vec![(A, taken)]));
        assert_eq!(state.held().map(|held| held.kind), Some(kind), "the others hold it still");
        let all = acquire(AcquireAction::PREEMPT, Type::EXCLUSIVE_ACCESS, key(B), 0);
        assert_eq!(run(&mut state, B, &all), Ok(vec![(C, taken)]));
        assert_eq!(
            state.held(),
            Some(CurrentReservation { kind: Type::EXCLUSIVE_ACCESS, holder: B })
        );
        assert_eq!(state.registrants().len(), 1);
    }
}

#[test]
fn without_a_reservation_registrations_are_preempted() {
    let mut state = all_registered();
    let request = acquire(AcquireAction::PREEMPT, Type::WRITE_EXCLUSIVE, key(B), key(A));
    let expected = vec![(A, NoticeKind::REGISTRATION_PREEMPTED)];
    assert_eq!(run(&mut state, B, &request), Ok(expected));
    assert_eq!(state.held(), None);
    assert_eq!(run(&mut state, B, &request), Err(CONFLICT), "nobody has this key any more");
}

#[test]
fn clearing_removes_everything_and_is_told() {
    let mut state = held_by_a(Type::WRITE_EXCLUSIVE);
    let request = release(ReleaseAction::CLEAR, Type::NONE, key(B));
    let told = [A, C].map(|host| (host, NoticeKind::RESERVATION_PREEMPTED)).to_vec();
    assert_eq!(run(&mut state, B, &request), Ok(told));
    assert_eq!((state.held(), state.registrants().len()), (None, 0));
}

#[test]
fn a_report_has_everyone_and_counts_changes() {
    let mut state = held_by_a(Type::EXCLUSIVE_ACCESS_ALL_REGISTRANTS);
    let report = state.report();
    let status = ReservationStatus::view(&report).expect("a report");
    assert_eq!((status.generation.get(), status.registrants.get()), (3, 3));
    assert_eq!(status.reservation_type, Type::EXCLUSIVE_ACCESS_ALL_REGISTRANTS);
    assert_eq!(report.len(), 64 * 4);
    for (at, host) in [A, B, C].into_iter().enumerate() {
        let entry = Registrant::view(&report[64 * (at + 1)..]).expect("an entry");
        assert_eq!((entry.host_id, entry.key.get(), entry.status), (host, key(host), 1));
        assert_eq!(entry.controller_id.get(), 0xffff);
    }
    // Acquire and Release leave the count as it is.
    let request = release(ReleaseAction::RELEASE, Type::EXCLUSIVE_ACCESS_ALL_REGISTRANTS, key(B));
    run(&mut state, B, &request).expect("released");
    assert_eq!(state.report()[..4], [3, 0, 0, 0]);
    run(&mut state, B, &release(ReleaseAction::CLEAR, Type::NONE, key(B))).expect("cleared");
    assert_eq!(state.report()[..4], [4, 0, 0, 0]);
}

#[test]
fn what_persists_needs_a_place() {
    let on = Request { operation: Operation::Persist(true), current: 0, other: 0 };
    let mut state = Reservations::default();
    assert_eq!(state.apply(A, &on, false), Err(FIELD));
    assert_eq!(state.apply(A, &on, true), Ok(vec![]));
    assert!(state.persists());
    let operation = Operation::Register {
        action: RegisterAction::REGISTER,
        ignore_existing_key: false,
        persist: Some(false),
    };
    assert_eq!(state.apply(A, &Request { operation, current: 0, other: 1 }, false), Ok(vec![]));
    assert!(!state.persists());
    assert_eq!(
        Reservations::restored(
            BTreeMap::new(),
            Some(CurrentReservation { kind: Type::NONE, holder: A })
        ),
        None
    );
}

#[test]
fn registrants_are_bounded() {
    let mut state = Reservations::default();
    for number in 0..=REGISTRANTS_MAX {
        let host: HostId = (number as u128 + 1).to_le_bytes();
        let outcome = run(&mut state, host, &register(RegisterAction::REGISTER, 0, 1));
        assert_eq!(outcome.is_ok(), number < REGISTRANTS_MAX);
    }
}

/// Every queue of a host looks at the same word.
#[test]
fn the_table_tells_every_host_what_is_refused() {
    let table = ReservationTable::default();
    let (a, other) = (table.access(&A), table.access(&[9; 16]));
    assert!(!other.refuses(1, Refusals::ALL));
    let none = table.get(1);
    let held = held_by_a(Type::WRITE_EXCLUSIVE);
    assert_eq!(table.change(1, &none, held.clone()), Some(vec![[9; 16]]), "who loses");
    assert_eq!(table.change(1, &none, Reservations::default()), None, "it has changed meanwhile");
    assert!(!a.refuses(1, Refusals::ALL));
    assert!(other.refuses(1, Refusals::WRITES) && !other.refuses(1, Refusals::READS));
    assert!(!other.refuses(2, Refusals::ALL), "another namespace");
    let late = table.access(&B);
    assert!(late.refuses(1, Refusals::WRITES), "a host that comes later");
    assert!(Arc::ptr_eq(&late, &table.access(&B)));
    assert_eq!(table.change(1, &held, Reservations::default()), Some(vec![]));
    assert!(!other.refuses(1, Refusals::ALL) && !late.refuses(1, Refusals::ALL));
}

/// A namespace that comes back has its reservations still; another one of its number has not.
#[test]
fn reservations_are_those_of_a_namespace() {
    let table = ReservationTable::default();
    table.serve(1, [1; 16], held_by_a(Type::EXCLUSIVE_ACCESS));
    let b = table.access(&B);
    assert!(b.refuses(1, Refusals::READS), "restored");
    table.serve(1, [1; 16], Reservations::default());
    assert!(b.refuses(1, Refusals::READS), "the same one");
    table.serve(1, [2; 16], Reservations::default());
    assert!(!b.refuses(1, Refusals::READS));
}
