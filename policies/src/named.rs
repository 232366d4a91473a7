//! Policies by name, as users order them from a server and as the server shows them.

use crate::engine::{Choice, Engine};
use crate::lcbe;
use crate::registry::{self, Row};
use protocol::control::{Parameter, Policy, PolicyInForce, PolicyOrder};
use protocol::ids::DeviceId;
use protocol::policy::PolicyKind;

/// Returns the policy that an order names, with its parameters; those that it does not name have their
/// defaults.
///
/// # Errors
/// There is no such policy or parameter, or a value is out of its range. The text is one line that says what
/// there is.
pub fn choice(ruling: &PolicyOrder) -> Result<Choice, String> {
    let mut choice = Choice::new(registry::by_name(&ruling.policy)?);
    for (name, value) in &ruling.values {
        let set = choice.values.set(name, *value);
        set.map_err(|error| format!("policy {}: {error}", choice.row.kind))?;
    }
    Ok(choice)
}

/// Returns a line for the user if a parameter has a value that is accepted and has no effect any more.
pub fn remark(choice: &Choice) -> Option<String> {
    (choice.row.kind == PolicyKind::Lcbe).then(|| lcbe::removed_method(&choice.values)).flatten()
}

/// Returns a policy with all its parameters, and the device that it rules.
pub fn ruling(device: Option<DeviceId>, choice: &Choice) -> PolicyOrder {
    let values = choice.values.iter().map(|(parameter, value)| (parameter.name.to_owned(), value));
    PolicyOrder { policy: choice.row.kind.name().to_owned(), values: values.collect(), device }
}

/// Returns the policies in force, in the order of [`Engine::choices`].
pub fn in_force(engine: &Engine) -> Vec<PolicyInForce> {
    let all =
        engine.choices().zip(engine.counters()).map(|((device, choice), (_, counters))| PolicyInForce {
            ruling: ruling(device, choice),
            counted: counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        });
    all.collect()
}

/// Returns a policy with its parameters in one line: "EDF slack-ms=5".
pub fn text(ruling: &PolicyOrder) -> String {
    let values = ruling.values.iter().map(|(name, value)| format!(" {name}={value}"));
    std::iter::once(ruling.policy.clone()).chain(values).collect()
}

/// Returns every policy of this build, in the order of their numbers.
pub fn all() -> Vec<Policy> {
    registry::POLICIES.iter().map(policy).collect()
}

fn policy(row: &Row) -> Policy {
    let parameters = row.parameters.iter().map(|parameter| Parameter {
        name: parameter.name.to_owned(),
        meaning: parameter.meaning.to_owned(),
        min: parameter.range.0,
        max: parameter.range.1,
        default: parameter.default,
    });
    Policy {
        name: row.kind.name().to_owned(),
        long_name: row.kind.long_name().to_owned(),
        number: row.kind.number(),
        description: row.description.to_owned(),
        advice: row.advice.to_owned(),
        parameters: parameters.collect(),
        goes_by_priority: row.goes_by_priority,
        conserves_work: row.conserves_work,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_choose_policies_and_errors_name_what_exists() {
        assert_eq!(all().len(), registry::POLICIES.len());
        for policy in all() {
            let values = policy.parameters.iter().map(|one| (one.name.clone(), one.max)).collect();
            let order = PolicyOrder { policy: policy.name.to_lowercase(), values, device: Some(DeviceId(7)) };
            let choice = choice(&order).unwrap();
            assert!(choice.values.iter().all(|(parameter, value)| value == parameter.range.1));
            assert_eq!(ruling(order.device, &choice), PolicyOrder { policy: policy.name, ..order });
        }
        let refused = |policy: &str, values: &[(&str, f64)]| {
            let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            choice(&PolicyOrder { policy: policy.to_owned(), values, device: None }).unwrap_err()
        };
        assert!(refused("FIFO", &[]).starts_with("no policy \"FIFO\" in this build (it contains HPF"));
        let error = refused("hpf", &[("slack", 5.0)]);
        assert_eq!(
            error,
            "policy HPF: no parameter \"slack\": this policy has gaps, share-percent, slowdown-percent, queues-first, \
             stream-priorities"
        );
    }

    #[test]
    fn removed_method_is_accepted_and_remarked() {
        let with = |method: f64| {
            let values = [("method".to_owned(), method)].into();
            choice(&PolicyOrder { policy: "LCBE".to_owned(), values, device: None }).unwrap()
        };
        assert_eq!(remark(&with(1.0)), None);
        let line = "LCBE learns a repeating pattern (method 1): method 2 was removed";
        assert_eq!(remark(&with(2.0)).as_deref(), Some(line));
        assert_eq!(remark(&Choice::new(registry::DEFAULT)), None);
    }

    #[test]
    fn ruling_is_one_line() {
        let values = [("slack-ms".to_owned(), 0.5)].into_iter().collect();
        let edf = PolicyOrder { policy: "EDF".to_owned(), values, device: None };
        assert_eq!(text(&edf), "EDF slack-ms=0.5");
    }
}
