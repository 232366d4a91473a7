use super::*;

/// A row whose twin has another signature would call the wrong function with the wrong arguments.
macro_rules! same_type {
    ($($twin:ident = $plain:ident;)*) => {
        $(const _: fn($twin) -> $plain = |function| function;)*
    };
}

same_type! {
    _Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j = hipExtModuleLaunchKernel;
    _Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_ = hipHccModuleLaunchKernel;
    _Z23hipDestroySurfaceObjectP13__hip_surface = hipDestroySurfaceObject;
}

#[test]
fn twins_have_the_same_arguments() {
    let all: Vec<&Prototype> = [DIRECT, DRAIN, TRANSLATE].into_iter().flatten().collect();
    for twin in all.iter().filter(|prototype| prototype.name.ends_with("_spt")) {
        let plain = all.iter().find(|prototype| prototype.name == twin.name.trim_end_matches("_spt"));
        let types = |prototype: &Prototype| {
            prototype.arguments.iter().map(|(_, kind)| kind.replace("c_uint", "u32")).collect::<Vec<_>>()
        };
        let plain = plain.expect("a twin has a plain function");
        assert_eq!(types(twin), types(plain), "{}", twin.name);
        assert_eq!(twin.scope, plain.scope, "{}", twin.name);
    }
}

#[test]
fn scopes_agree_with_arguments() {
    for prototype in [DIRECT, DRAIN, EMBEDDED, TRANSLATE, FORWARD].into_iter().flatten() {
        let streams: Vec<&str> = prototype
            .arguments
            .iter()
            .filter(|(_, kind)| *kind == "hipStream_t")
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(prototype.streams, streams, "{}", prototype.name);
        match prototype.scope {
            Scope::Own => assert!(!streams.is_empty(), "{}", prototype.name),
            Scope::Default | Scope::Embedded => assert!(streams.is_empty(), "{}", prototype.name),
            Scope::None | Scope::All => {}
        }
    }
    for prototype in DRAIN {
        assert!(
            !matches!(prototype.scope, Scope::None | Scope::Embedded),
            "{} drains nothing",
            prototype.name
        );
    }
    assert!(EMBEDDED.iter().all(|prototype| prototype.scope == Scope::Embedded));
    assert!(TRANSLATE.iter().all(|prototype| prototype.scope == Scope::Own));
}

#[test]
fn rows_can_become_functions() {
    // As a shim uses them: one function of each row, with the arguments that are streams at hand.
    macro_rules! functions {
        ($([own $($stream:ident)*] fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
            $(#[allow(non_snake_case, unused_variables, dead_code)]
            fn $name($($argument: $type),*) -> usize {
                [$($stream.as_raw()),*].into_iter().sum()
            })*
        };
    }
    translate_prototypes!(functions);
    assert_eq!(hipStreamGetFlags(hipStream_t::PER_THREAD, core::ptr::null_mut()), 2);
}
