//! The Persistent Event Log of a subsystem: what has happened to it, across resets and restarts.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft_nvme::Wire;
use weft_nvme::log_page::{
    ChangeNamespace, ControllerReset, CriticalWarning, PersistentEvent, PersistentEventHeader,
    PersistentEventInformation, PersistentEventType, PersistentEvents, SetFeatureLayout, Timestamp,
};

use crate::limits::{EVENT_CONTROLLERS_MAX, EVENT_FLOOD_MS, EVENTS_OF_TYPE_MAX};
use weft_nvme::wire::{Text, U16, U32, U64};

/// The largest log page, in units of 64 KiB (PELS): beyond it the oldest events go.
pub(crate) const LOG_64K: u32 = 1;
const EVENT_BYTES_MAX: usize = LOG_64K as usize * 65536 - PersistentEventHeader::SIZE;

/// Code of an NVM Subsystem Hardware Error event: Critical Warning Condition.
const CRITICAL_WARNING: u16 = 6;

/// Controller Identifier of events that no controller has caused.
const NO_CONTROLLER: u16 = 0xffff;

/// The types of events that are recorded. Nothing here commits firmware or sets a timestamp.
pub(crate) const RECORDED: [PersistentEventType; 4] = [
    PersistentEventType::POWER_ON_OR_RESET,
    PersistentEventType::HARDWARE_ERROR,
    PersistentEventType::CHANGE_NAMESPACE,
    PersistentEventType::SET_FEATURE,
];

/// The controller that an event is about, and the port by which its host came.
pub(crate) type Origin = (u16, u16);

/// What outlasts a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SavedEvents {
    /// How often the subsystem was started (Power Cycle Count).
    pub power_cycles: u64,
    /// The events as they are in the log page, newest first.
    pub events: Vec<Arc<[u8]>>,
}

impl SavedEvents {
    /// Whether each is one event, and they are no more than a log page has.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let is_event = |bytes: &Arc<[u8]>| {
            let mut events = PersistentEvents::new(bytes);
            matches!((events.next(), events.next()), (Some(Ok(_)), None))
        };
        let bytes: usize = self.events.iter().map(|event| event.len()).sum();
        bytes <= EVENT_BYTES_MAX && self.events.iter().all(is_event)
    }
}

/// The events of a subsystem.
///
/// The lock is taken when something is recorded and when a host begins to read, never by an I/O
/// command.
#[derive(Debug)]
pub struct EventLog {
    /// When the subsystem was started.
    started: Duration,
    /// The time since 1970 at which the monotonic clock began; zero if that is not known.
    epoch: Duration,
    recorded: Mutex<LogState>,
    /// Who keeps the events, and is told of new ones.
    keeper: Option<SyncSender<()>>,
}

#[derive(Debug)]
struct LogState {
    power_cycles: u64,
    /// The start has been recorded.
    is_on: bool,
    newest_first: VecDeque<Arc<[u8]>>,
    bytes: usize,
    /// Generation Number of the last context, and whether the next one has another.
    generation: u16,
    has_news: bool,
}

/// What a host reads as long as its context exists.
#[derive(Debug)]
pub(crate) struct EventSnapshot {
    pub(crate) generation: u16,
    pub(crate) power_cycles: u64,
    pub(crate) events: Vec<Arc<[u8]>>,
}

impl Default for EventLog {
    fn default() -> Self {
        Self::new(Duration::ZERO, Duration::ZERO, SavedEvents::default(), None)
    }
}

impl EventLog {
    /// The log of a subsystem that is started once more, with what was kept of earlier times.
    /// `epoch` is the time since 1970 at which the clock of `started` began, or zero.
    #[must_use]
    pub fn new(
        started: Duration,
        epoch: Duration,
        kept: SavedEvents,
        keeper: Option<SyncSender<()>>,
    ) -> Self {
        let recorded = LogState {
            power_cycles: kept.power_cycles.saturating_add(1),
            is_on: false,
            bytes: kept.events.iter().map(|event| event.len()).sum(),
            newest_first: kept.events.into(),
            generation: 0,
            has_news: true,
        };
        Self { started, epoch, recorded: Mutex::new(recorded), keeper }
    }

    /// What is to be kept.
    #[must_use]
    pub fn kept(&self) -> SavedEvents {
        let EventSnapshot { power_cycles, events, .. } = self.snapshot_of(&self.lock());
        SavedEvents { power_cycles, events }
    }

    /// The subsystem is served with this firmware revision, since it was started; recorded once.
    pub fn record_power_on(&self, firmware: &str) {
        let was_on = std::mem::replace(&mut self.lock().is_on, true);
        if !was_on {
            self.record_reset(firmware, &[], None, self.started);
        }
    }

    /// A device has lost writes, or something else has given a Critical Warning.
    pub fn record_critical_warning(&self, warning: CriticalWarning, now: Duration) {
        let mut data = u32::from(CRITICAL_WARNING).to_le_bytes().to_vec();
        data.push(warning.0);
        self.record(PersistentEventType::HARDWARE_ERROR, 2, &data, None, now);
    }

    /// These controllers were reset.
    pub(crate) fn record_reset(
        &self,
        firmware: &str,
        controllers: &[u16],
        origin: Option<Origin>,
        now: Duration,
    ) {
        let mut data = Text::<8>::new(firmware).bytes().to_vec();
        let power_cycles = u32::try_from(self.power_cycles()).unwrap_or(u32::MAX);
        for controller_id in controllers.iter().take(EVENT_CONTROLLERS_MAX) {
            let reset = ControllerReset {
                controller_id: U16::new(*controller_id),
                power_cycles: U32::new(power_cycles),
                power_on_ms: U64::new(milliseconds(now.saturating_sub(self.started))),
                timestamp: self.timestamp(now).into(),
                ..ControllerReset::default()
            };
            data.extend_from_slice(reset.bytes());
        }
        self.record(PersistentEventType::POWER_ON_OR_RESET, 1, &data, origin, now);
    }

    /// A host has made or deleted a namespace.
    pub(crate) fn record_namespace(&self, change: &ChangeNamespace, origin: Origin, now: Duration) {
        let kind = PersistentEventType::CHANGE_NAMESPACE;
        self.record(kind, 2, change.bytes(), Some(origin), now);
    }

    /// A host has set a feature by a command with these dwords from 10 on.
    pub(crate) fn record_feature(&self, dwords: [u32; 2], origin: Origin, now: Duration) {
        let layout = SetFeatureLayout(0).with_dwords(2).0;
        let [first, second] = dwords;
        let data = [layout, first, second].map(u32::to_le_bytes).concat();
        self.record(PersistentEventType::SET_FEATURE, 1, &data, Some(origin), now);
    }

    /// What a context that is established now shows.
    pub(crate) fn snapshot(&self) -> EventSnapshot {
        let mut recorded = self.lock();
        if std::mem::take(&mut recorded.has_news) {
            recorded.generation = recorded.generation.wrapping_add(1);
        }
        self.snapshot_of(&recorded)
    }

    /// Power Cycle Count.
    pub(crate) fn power_cycles(&self) -> u64 {
        self.lock().power_cycles
    }

    pub(crate) fn timestamp(&self, now: Duration) -> Timestamp {
        let origin = match self.epoch.is_zero() {
            true => Timestamp::SINCE_RESET,
            false => Timestamp::SINCE_1970,
        };
        let since = milliseconds(self.epoch.saturating_add(now));
        Timestamp(0).with_milliseconds(since).with_origin(origin)
    }

    fn record(
        &self,
        kind: PersistentEventType,
        revision: u8,
        data: &[u8],
        origin: Option<Origin>,
        now: Duration,
    ) {
        let (controller_id, port_id) = origin.unwrap_or((NO_CONTROLLER, 0));
        let port_type = match origin {
            Some(_) => PersistentEvent::SUBSYSTEM_PORT,
            None => PersistentEvent::NO_PORT,
        };
        let header = PersistentEvent {
            kind,
            revision,
            header_length: PersistentEvent::HEADER_LENGTH,
            information: PersistentEventInformation(0).with_port_type(port_type),
            controller_id: U16::new(controller_id),
            timestamp: self.timestamp(now).into(),
            port_id: U16::new(port_id),
            length: U16::new(u16::try_from(data.len()).unwrap_or(u16::MAX)),
            ..PersistentEvent::default()
        };
        let mut recorded = self.lock();
        if recorded.is_flooded(&header) {
            return;
        }
        recorded.push([header.bytes(), data].concat().into());
        drop(recorded);
        if let Some(keeper) = &self.keeper {
            // If it has been told already, it will find this event as well.
            let _ = keeper.try_send(());
        }
    }

    fn snapshot_of(&self, recorded: &LogState) -> EventSnapshot {
        EventSnapshot {
            generation: recorded.generation,
            power_cycles: recorded.power_cycles,
            events: recorded.newest_first.iter().cloned().collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        // Nothing that is done under the lock can panic halfway.
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogState {
    /// Whether there were too many of this type a short time ago.
    fn is_flooded(&self, next: &PersistentEvent) -> bool {
        let time = |event: &PersistentEvent| Timestamp(event.timestamp.get()).milliseconds();
        let events = self.newest_first.iter().filter_map(|bytes| PersistentEvent::read(bytes).ok());
        let recent = events.take_while(|event| time(next).abs_diff(time(event)) < EVENT_FLOOD_MS);
        recent.filter(|event| event.kind == next.kind).count() >= EVENTS_OF_TYPE_MAX
    }

    fn push(&mut self, event: Arc<[u8]>) {
        self.bytes += event.len();
        self.newest_first.push_front(event);
        while self.bytes > EVENT_BYTES_MAX
            && let Some(oldest) = self.newest_first.pop_back()
        {
            self.bytes -= oldest.len();
        }
        self.has_news = true;
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: Origin = (7, 3);

    fn kinds(log: &EventLog) -> Vec<PersistentEventType> {
        let read = |event: &Arc<[u8]>| PersistentEvent::read(event).expect("an event").kind;
        log.snapshot().events.iter().map(read).collect()
    }

    #[test]
    fn the_newest_event_is_the_first_and_the_oldest_go() {
        let log = EventLog::default();
        log.record_power_on("0.1");
        log.record_feature([0x84, 1], ORIGIN, Duration::from_secs(1));
        let newest = [PersistentEventType::SET_FEATURE, PersistentEventType::POWER_ON_OR_RESET];
        assert_eq!(kinds(&log), newest);
        let one = PersistentEvent::SIZE + 12;
        for minute in 1..2000 {
            log.record_feature([0x84, minute], ORIGIN, Duration::from_secs(60 * u64::from(minute)));
        }
        let kept = log.kept();
        assert_eq!(kept.events.len(), EVENT_BYTES_MAX / one);
        assert!(kept.is_valid());
        let newest = &kept.events[0][PersistentEvent::SIZE..];
        assert_eq!(newest, [2, 0, 0, 0, 0x84, 0, 0, 0, 0xcf, 7, 0, 0], "the last one");
        assert!(!kinds(&log).contains(&PersistentEventType::POWER_ON_OR_RESET), "the first one");
    }

    #[test]
    fn a_flood_of_one_type_leaves_the_others() {
        let log = EventLog::default();
        log.record_critical_warning(CriticalWarning(4), Duration::ZERO);
        let second = |second: u64| Duration::from_millis(1000 + 10 * second);
        for number in 0..3000 {
            log.record_reset("0.1", &[1], Some(ORIGIN), second(number));
        }
        log.record_feature([0x84, 1], ORIGIN, second(0));
        assert_eq!(kinds(&log).len(), 1 + EVENTS_OF_TYPE_MAX + 1);
        log.record_reset("0.1", &[1], Some(ORIGIN), Duration::from_secs(62));
        assert_eq!(kinds(&log)[0], PersistentEventType::POWER_ON_OR_RESET, "a minute later");
        let last = log.kept().events.pop().expect("the first one");
        assert_eq!(last[PersistentEvent::SIZE..], [6, 0, 0, 0, 4]);
    }

    #[test]
    fn events_have_the_time_of_day_where_it_is_known() {
        let log = EventLog::default();
        let since_reset = log.timestamp(Duration::from_secs(2));
        assert_eq!((since_reset.milliseconds(), since_reset.origin()), (2000, 0));
        let log = EventLog::new(
            Duration::ZERO,
            Duration::from_secs(1_700_000_000),
            SavedEvents::default(),
            None,
        );
        let set = log.timestamp(Duration::from_millis(5));
        assert_eq!((set.milliseconds(), set.origin()), (1_700_000_000_005, 1));
    }

    #[test]
    fn what_was_kept_is_there_again() {
        let (keeper, told) = std::sync::mpsc::sync_channel(1);
        let none = SavedEvents::default();
        let log = EventLog::new(Duration::ZERO, Duration::ZERO, none, Some(keeper));
        log.record_power_on("0.1");
        log.record_power_on("0.1");
        log.record_feature([0x84, 1], ORIGIN, Duration::ZERO);
        assert_eq!(told.try_iter().count(), 1, "told once, it looks for all");
        let kept = log.kept();
        assert_eq!((kept.power_cycles, kept.events.len()), (1, 2));
        let again = EventLog::new(Duration::ZERO, Duration::ZERO, kept.clone(), None);
        assert_eq!(again.kept(), SavedEvents { power_cycles: 2, ..kept.clone() });
        let with = |event: &[u8]| SavedEvents { events: vec![event.into()], ..kept.clone() };
        let event = &kept.events[0];
        assert!(with(event).is_valid());
        assert!(!with(&event[1..]).is_valid() && !with(&[]).is_valid());
        assert!(!with(&[&event[..], &event[..]].concat()).is_valid());
        let many = SavedEvents { events: vec![Arc::clone(event); 3000], ..kept };
        assert!(!many.is_valid(), "more than a log page has");
    }

    #[test]
    fn a_context_with_other_contents_has_another_generation() {
        let log = EventLog::default();
        assert_eq!((log.snapshot().generation, log.snapshot().generation), (1, 1));
        log.record_power_on("0.1");
        assert_eq!((log.snapshot().generation, log.snapshot().generation), (2, 2));
    }
}
