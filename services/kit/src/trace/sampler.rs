//! Which traces are kept.
//!
//! Every process decides by the trace's id alone, so all that have the same setting keep the same traces, also across a channel,
//! where no flag can be sent. The ratio of the SDK would not do: it takes the upper bits of an id to be random, and those of a
//! UUID, which is what calls' traces are named by, are its version, its variant and the time.

use opentelemetry::{
    Context, KeyValue,
    trace::{Link, SpanKind, TraceContextExt as _, TraceId, TraceState},
};
use opentelemetry_sdk::trace::{SamplingDecision, SamplingResult, ShouldSample};

/// Share of traces that are kept, in 2^-64 of all; `u64::MAX` keeps all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Sampler(u64);

/// The setting is none that is known.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG: write always_on, always_off or traceidratio (with a share from 0 to 1), or one of them behind parentbased_"
)]
pub(crate) struct UnknownSampler;

impl Sampler {
    pub(crate) const ALL: Self = Self(u64::MAX);
    pub(crate) const NONE: Self = Self(0);

    /// Reads `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`. Whether a parent is asked makes no difference here: every span
    /// of a trace is kept or not as its root is.
    pub(crate) fn read(name: &str, share: Option<&str>) -> Result<Self, UnknownSampler> {
        match name.strip_prefix("parentbased_").unwrap_or(name) {
            "" | "always_on" => Ok(Self::ALL),
            "always_off" => Ok(Self::NONE),
            "traceidratio" => share.map_or(Ok(Self::ALL), |share| {
                let share: f64 = share.trim().parse().map_err(|_| UnknownSampler)?;
                Self::of_share(share).ok_or(UnknownSampler)
            }),
            _ => Err(UnknownSampler),
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share from 0 to 1 of all numbers; `as` ends at the largest"
    )]
    fn of_share(share: f64) -> Option<Self> {
        (0.0..=1.0)
            .contains(&share)
            .then_some(Self((share * u64::MAX as f64) as u64))
    }

    /// Whether a trace is kept.
    pub(crate) fn samples(self, trace: TraceId) -> bool {
        self == Self::ALL || spread(u128::from_be_bytes(trace.to_bytes())) < self.0
    }
}

/// Every bit of an id has its part in each of these (the finalizer of MurmurHash3, over both halves).
#[expect(clippy::cast_possible_truncation, reason = "the two halves of an id")]
const fn spread(id: u128) -> u64 {
    let mut bits = (id >> 64) as u64 ^ (id as u64).rotate_left(32);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ (bits >> 33)
}

impl ShouldSample for Sampler {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        _: &str,
        _: &SpanKind,
        _: &[KeyValue],
        _: &[Link],
    ) -> SamplingResult {
        let parent = parent
            .map(|parent| parent.span().span_context().clone())
            .filter(|parent| parent.is_valid());
        let keep = parent.map_or_else(|| self.samples(trace), |parent| parent.is_sampled());
        SamplingResult {
            decision: if keep {
                SamplingDecision::RecordAndSample
            } else {
                SamplingDecision::Drop
            },
            attributes: Vec::new(),
            trace_state: TraceState::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn settings_are_those_of_the_standard() {
        let half = Sampler::of_share(0.5).expect("a share");
        for (name, share, sampler) in [
            ("", None, Ok(Sampler::ALL)),
            ("always_on", None, Ok(Sampler::ALL)),
            ("parentbased_always_on", Some("x"), Ok(Sampler::ALL)),
            ("parentbased_always_off", None, Ok(Sampler::NONE)),
            ("traceidratio", Some("0.5"), Ok(half)),
            ("parentbased_traceidratio", Some(" 0.5 "), Ok(half)),
            ("traceidratio", None, Ok(Sampler::ALL)),
            ("traceidratio", Some("2"), Err(UnknownSampler)),
            ("traceidratio", Some("half"), Err(UnknownSampler)),
            ("jaeger_remote", None, Err(UnknownSampler)),
        ] {
            assert_eq!(Sampler::read(name, share), sampler, "{name} {share:?}");
        }
    }

    /// The ids of one moment, which differ in their last bits alone.
    #[test]
    fn a_share_of_calls_is_kept_though_their_ids_are_alike() {
        let moment = 0x0193_a0e4_5b1c_7000_8000_0000_0000_0000_u128;
        for share in [0.05, 0.5, 0.95] {
            let sampler = Sampler::of_share(share).expect("a share");
            let ids = (0..10_000_u128).map(|n| TraceId::from(moment + n));
            let kept = ids.filter(|id| sampler.samples(*id)).count();
            let share = share * 10_000.0;
            #[expect(clippy::cast_precision_loss, reason = "below ten thousand")]
            let off = (kept as f64 - share).abs();
            assert!(off < 300.0, "{kept} of {share}");
        }
    }
}
