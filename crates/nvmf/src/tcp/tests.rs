//! Target and host sessions joined in memory, malformed PDUs, and the harnesses on random bytes.

use proptest::prelude::*;
use weft_nvme::command::Flags;
use weft_nvme::sgl::Descriptor;
use weft_nvme::tcp::{self, CommonHeader, Fes, Kind, PduType, TerminateRequest};
use weft_nvme::wire::{U16, U32};
use weft_nvme::{Command, Completion, Status, Wire};

use super::encode::{DataPdu, Encoder};
use super::handshake::{ControllerParameters, HostParameters, Negotiated};
use super::{FatalError, digest, fuzzing, host, target};

mod joined;
mod malformed;
mod vectors;

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn framing_of_anything(input in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzzing::framing(&input);
    }

    #[test]
    fn target_session_under_anything(input in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzzing::target_session(&input);
    }

    #[test]
    fn host_session_under_anything(input in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzzing::host_session(&input);
    }

    /// After a good handshake, so that most of the actions mean something.
    #[test]
    fn target_session_after_the_handshake(
        head in proptest::array::uniform3(any::<u8>()),
        request in proptest::array::uniform4(any::<u8>()),
        actions in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let mut input = head.to_vec();
        input.push(6);
        input.extend_from_slice(&request);
        input.extend_from_slice(&[7, 63, 0, 1]);
        input.extend_from_slice(&actions);
        fuzzing::target_session(&input);
    }
}
