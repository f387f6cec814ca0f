//! The methods of `weft trace`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weft_rpc::Methods;
use weft_statistics::trace::{ReadTrace, StartTrace, TraceOptions, TracedCommands};
use weft_target::{TraceConfig, TracedGroup};

use super::operator::Operator;
use crate::limits::TRACE_PART_COMMANDS;

/// Groups whose commands have not all been read, with their numbers.
type UnreadGroups = Mutex<VecDeque<(usize, TracedGroup)>>;

pub(super) fn methods(methods: Methods, operator: &Arc<Operator>) -> Methods {
    let unread: Arc<UnreadGroups> = Arc::default();
    let (starts, reads) = (Arc::clone(operator), Arc::clone(operator));
    let dropped = Arc::clone(&unread);
    methods
        .with::<StartTrace>(move |options| {
            let config = config(options)?;
            let started = starts.with(|target| target.start_trace(config));
            started.map_err(|error| error.message)?.map_err(|error| error.to_string())?;
            dropped.lock().unwrap_or_else(PoisonError::into_inner).clear();
            Ok(true)
        })
        .with::<ReadTrace>(move |()| read(&reads, &unread))
}

fn config(options: TraceOptions) -> Result<TraceConfig, String> {
    let TraceOptions { time_ms, commands } = options;
    let time = Duration::from_millis(time_ms);
    if time.is_zero() || time > TraceConfig::TIME_MAX {
        return Err(format!("a trace takes 1 ms to {} s", TraceConfig::TIME_MAX.as_secs()));
    }
    if commands == 0 || commands > TraceConfig::COMMANDS_MAX {
        return Err(format!("a trace keeps 1 to {} commands", TraceConfig::COMMANDS_MAX));
    }
    Ok(TraceConfig { time, commands })
}

/// The next part, if the trace is complete.
fn read(operator: &Operator, unread: &UnreadGroups) -> Result<Option<TracedCommands>, String> {
    let mut unread = unread.lock().unwrap_or_else(PoisonError::into_inner);
    if unread.is_empty() {
        let taken = operator.with(|target| target.take_trace()).map_err(|error| error.message)?;
        match taken.map_err(|error| error.to_string())? {
            None => return Ok(None),
            Some(groups) => unread.extend(groups.into_iter().enumerate()),
        }
    }
    let Some((group, mut recorded)) = unread.pop_front() else { return Ok(None) };
    let count = recorded.commands.len().min(TRACE_PART_COMMANDS);
    let mut part = TracedCommands {
        group,
        queues: std::mem::take(&mut recorded.queues),
        commands: recorded.commands.drain(..count).collect(),
        replaced: recorded.replaced,
        beyond: recorded.beyond,
        is_last: false,
    };
    if !recorded.commands.is_empty() {
        unread.push_front((group, recorded));
    }
    part.is_last = unread.is_empty();
    Ok(Some(part))
}
