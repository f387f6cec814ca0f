//! `weft detach`.

use clap::Args;
use serde_json::json;
use weft_reactor::ublk::State;

use crate::attach::tools::{block_device, delete, hold, open_control, own_device, refused};
use crate::failure::Failure;
use crate::output::Format;

/// Options of `weft detach`.
///
/// Flushes the device and removes it; the `weft attach` that serves it ends. Refuses while the
/// device is mounted or used exclusively in another way.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The device, /dev/ublkbN, or its number.
    #[arg(value_name = "DEVICE", value_parser = number)]
    device: u32,
    /// Also if it is in use, or if nothing serves it: what its users have not written is lost to
    /// them.
    #[arg(short, long)]
    force: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut control = open_control()?;
    let id = options.device;
    let info = own_device(&mut control, id)?;
    let held = match info.state {
        State::Live => hold(id, options.force)
            .map_err(|why| Failure::Because(format!("{why}; --force detaches it nevertheless")))?,
        State::Quiesced if !options.force => {
            return Err(Failure::Because(format!(
                "nothing serves {}: weft attach --recover {id} does, or --force gives up what was \
                 not written",
                block_device(id).display()
            )));
        }
        _ => None,
    };
    control.stop(id).map_err(|error| refused("to stop the device", &error))?;
    drop(held);
    delete(&mut control, id)?;
    options.output_format.print("", &json!({ "device": block_device(id) }))
}

fn number(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("/dev/").unwrap_or(text);
    let number = number.strip_prefix("ublkb").unwrap_or(number);
    number.parse().map_err(|_| format!("{text:?} is not like /dev/ublkb0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_by_path_or_number() {
        for text in ["/dev/ublkb12", "ublkb12", "12"] {
            assert_eq!(number(text), Ok(12), "{text}");
        }
        for text in ["/dev/sda", "/dev/ublkc1", "", "/dev/ublkb", "-1"] {
            assert!(number(text).is_err(), "{text}");
        }
    }
}
