//! Get Features and Set Features: what can be asked of and told to a controller.

mod command;
mod value;

pub use command::{FeatureId, GetFeatures, Select, SetFeatures};
pub use value::{
    Arbitration, AsynchronousEventConfiguration, AutonomousPowerStateTransition, CommandSetProfile,
    ErrorRecovery, FeatureCapabilities, HostBehavior, HostIdentifier, NumberOfQueues,
    PowerManagement, ReservationNotificationMask, ReservationPersistence, SpinupControl,
    TemperatureThreshold, TemperatureThresholdType, Timestamp, VolatileWriteCache, WriteAtomicity,
    WriteProtection, WriteProtectionState,
};
