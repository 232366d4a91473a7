//! The built-in workloads. They have the form of users' files: `xbench policy-sim --show NAME` prints one.

/// The name and the text of each, in the order of the list.
pub const WORKLOADS: &[(&str, &str)] = &[
    ("mm1", include_str!("../../workloads/mm1.toml")),
    ("mg1", include_str!("../../workloads/mg1.toml")),
    ("disb-a", include_str!("../../workloads/disb-a.toml")),
    ("disb-b", include_str!("../../workloads/disb-b.toml")),
    ("disb-c", include_str!("../../workloads/disb-c.toml")),
    ("disb-d", include_str!("../../workloads/disb-d.toml")),
    ("disb-e", include_str!("../../workloads/disb-e.toml")),
    ("test3", include_str!("../../workloads/test3.toml")),
    ("test4", include_str!("../../workloads/test4.toml")),
    ("two-models", include_str!("../../workloads/two-models.toml")),
    ("bursts", include_str!("../../workloads/bursts.toml")),
    ("three-priorities", include_str!("../../workloads/three-priorities.toml")),
    ("shares", include_str!("../../workloads/shares.toml")),
    ("tokens", include_str!("../../workloads/tokens.toml")),
    ("tokens-two", include_str!("../../workloads/tokens-two.toml")),
    ("tokens-long", include_str!("../../workloads/tokens-long.toml")),
    ("jobs", include_str!("../../workloads/jobs.toml")),
    ("many", include_str!("../../workloads/many.toml")),
];

pub fn find(name: &str) -> Option<&'static str> {
    WORKLOADS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::super::case::Case;
    use super::*;

    #[test]
    fn builtin_workloads_load_and_have_a_description() {
        for (name, _) in WORKLOADS {
            let case = Case::load(name).unwrap();
            assert!(!case.workload.about.is_empty() && !case.workload.about.contains('\n'), "{name}");
            assert!(case.instances().len() > 1, "{name}");
        }
        let error = Case::load("mm2").unwrap_err().to_string();
        assert!(error.starts_with("no workload \"mm2\", nor such a file (built in are mm1, "), "{error}");
    }
}
