//! `weft get-feature` and `weft set-feature`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use weft_nvme::feature::{FeatureId, GetFeatures, Select, SetFeatures};
use weft_nvmf::host::AdminData;

use crate::connection::{Connection, NamespaceChoice};
use crate::failure::Failure;
use crate::fields::hex;
use crate::output::{self, Format};
use crate::values::number;

/// Options of `weft get-feature`.
#[derive(Debug, Args)]
pub(crate) struct GetOptions {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    namespace: NamespaceChoice,
    /// Feature Identifier (FID), such as 7 or 0x0e.
    #[arg(short, long, value_parser = number::<u8>, value_name = "FID")]
    feature_id: u8,
    /// Which value: 0 current, 1 default, 2 saved, 3 what of it is supported.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=3))]
    sel: u8,
    /// Command Dword 11, which some features define.
    #[arg(long, default_value = "0", value_parser = number::<u32>)]
    cdw11: u32,
    /// Bytes of data; by default what the feature has.
    #[arg(long, value_name = "BYTES")]
    data_len: Option<u32>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

/// Options of `weft set-feature`.
#[derive(Debug, Args)]
pub(crate) struct SetOptions {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    namespace: NamespaceChoice,
    /// Feature Identifier (FID), such as 7 or 0x0e.
    #[arg(short, long, value_parser = number::<u8>, value_name = "FID")]
    feature_id: u8,
    /// Its new value (Command Dword 11), such as 1 or 0x10001.
    #[arg(long, default_value = "0", value_parser = number::<u32>)]
    value: u32,
    /// The value is to survive a reset (SV).
    #[arg(long)]
    save: bool,
    /// File with the data of features that have some.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output_format: Format,
}

/// Bytes of data that a feature has.
fn data_length(feature: FeatureId, cdw11: u32) -> u32 {
    match feature {
        FeatureId::TIMESTAMP => 8,
        FeatureId::HOST_IDENTIFIER => weft_nvme::feature::HostIdentifier(cdw11).data_length(),
        FeatureId::HOST_BEHAVIOR_SUPPORT => 512,
        _ => 0,
    }
}

pub(crate) fn get(options: &GetOptions) -> Result<(), Failure> {
    let controller = options.connection.connect()?;
    let (feature, select) = (FeatureId(options.feature_id), Select(options.sel));
    let get = GetFeatures {
        namespace_id: options.namespace.nsid().unwrap_or(0),
        select,
        cdw11: options.cdw11,
        ..GetFeatures::new(feature)
    };
    let is_value = select != Select::SUPPORTED_CAPABILITIES;
    let usual = if is_value { data_length(feature, options.cdw11) } else { 0 };
    let data = match options.data_len.unwrap_or(usual) {
        0 => AdminData::None,
        length => AdminData::FromController(length),
    };
    let answer = controller.admin_command_checked(get.to_command(), data)?;
    controller.disconnect()?;
    let value = answer.completion.dword0();
    if options.output_format == Format::Json {
        return output::print_json(&json!({
            "feature": feature.0,
            "name": feature.to_string(),
            "sel": select.to_string(),
            "value": value,
            "data": hex(&answer.data),
        }));
    }
    let mut text =
        format!("get-feature:{:#04x} ({feature}), {select} value:{value:#010x}\n", feature.0);
    if !answer.data.is_empty() {
        text += &format!("data: {}\n", hex(&answer.data));
    }
    output::print(&text)
}

pub(crate) fn set(options: &SetOptions) -> Result<(), Failure> {
    let data = match &options.data {
        None => AdminData::None,
        Some(path) => AdminData::ToController(
            std::fs::read(path).map_err(|e| Failure::io("read", &path.display(), &e))?,
        ),
    };
    let controller = options.connection.connect()?;
    let feature = FeatureId(options.feature_id);
    let set = SetFeatures {
        namespace_id: options.namespace.nsid().unwrap_or(0),
        save: options.save,
        ..SetFeatures::new(feature, options.value)
    };
    let answer = controller.admin_command_checked(set.to_command(), data)?;
    controller.disconnect()?;
    let result = answer.completion.dword0();
    let value = options.value;
    match options.output_format {
        Format::Human => {
            output::print_error(&format!(
                "set-feature:{:#04x} ({feature}), value:{value:#010x}",
                feature.0
            ));
            Ok(())
        }
        Format::Json => output::print_json(&json!({
            "feature": feature.0,
            "name": feature.to_string(),
            "value": value,
            "result": result,
        })),
    }
}
