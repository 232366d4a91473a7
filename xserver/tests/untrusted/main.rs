//! Input of others, at random. `make fuzz` runs the same entry points for longer, guided by what they cover.

mod entry;

use proptest::collection::vec;
use proptest::prelude::*;
use xserver::configuration::keys::TABLES;

/// A line of a configuration: a header, or a key with a value of some type.
fn line() -> impl Strategy<Value = String> {
    let headers: Vec<_> = TABLES.iter().map(|table| table.header.to_owned()).collect();
    let keys: Vec<_> =
        TABLES.iter().flat_map(|table| table.keys).map(|key| (key.name, key.default)).collect();
    let value = prop_oneof![
        (-300i64..300).prop_map(|number| number.to_string()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| format!("{number:?}")),
        Just("true".to_owned()),
        "\"[a-zA-Z0-9/*]{0,9}\"",
        "\\[(\"[a-z/*]{0,9}\",?){0,3}\\]",
        "\\{ ?([a-z-]{1,15} = [0-9]{1,4})? ?\\}",
        prop::sample::select(vec!["\"FAIR\"", "\"0660\"", "\"/run/x\"", "[0]", "{ share-percent = 50 }"])
            .prop_map(str::to_owned),
    ];
    let keys = prop::sample::select(keys);
    prop_oneof![
        2 => prop::sample::select(headers),
        3 => keys.clone().prop_map(|(name, default)| format!("{name} = {default}")),
        3 => (keys, value).prop_map(|((name, _), value)| format!("{name} = {value}")),
        1 => "[ -~\\n]{0,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn any_configuration_is_read_or_refused_in_one_line(lines in vec(line(), 0..12)) {
        entry::configuration(&lines.join("\n"));
    }

    #[test]
    fn any_page_and_message_leaves_the_core_in_order(bytes in vec(any::<u8>(), 0..400)) {
        entry::pages(&bytes);
    }
}
