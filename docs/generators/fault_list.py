"""The faults that recur in the field, each with what has to hold here, and what comes later."""

PROBES: dict[str, str] = {
    "A1a": "SFT rows of one and of three tokens give 1.75 however the step is cut",
    "A1b": "rows of two and six tokens give every reduction its own value, for every cut",
    "A1c": "loss and gradient of each preset do not depend on the cut",
    "A1d": "a short last batch is divided by its own count",
    "A1e": "the loss in the log is the loss that was minimised",
    "A2a": "EOS is trained also where it doubles as the padding token",
    "A2b": "an EOS inside the prompt is kept, attended to and not trained",
    "A2c": "a model trained so stops after the answer",
    "A2d": "a truncated response gets no EOS and is counted",
    "A3a": "the automatic BOS is never put on top of the template's",
    "A3b": "SFT, rollout, evaluation and engine see the same prompt ids",
    "A3c": "a control token that a user types is plain text, and counted",
    "A4a": "the trained span is the response and EOS, whatever merges over the boundary",
    "A4b": "a chat template that opens the thought is handled",
    "A4c": "the coloured view shows exactly the trained span",
    "A5a": "the temperature is applied on both sides",
    "A5b": "engine and trainer agree at every temperature",
    "A5c": "a truncated distribution is corrected for, or refused",
    "A5d": "the chunked scores and their gradients equal the plain ones",
    "A5e": "the gap between a bfloat16 engine and the trainer is measured",
    "A6a": "a small gap per token does not drop a long answer",
    "A6b": "what a sequence bound drops is counted",
    "A6c": "the same for products of ratios",
    "A6d": "ratios in the metrics are not clipped",
    "A7a": "a step with every row masked has loss 0 and gradient 0, and goes on",
    "A7b": "a masked row leaves the denominator too",
    "A7c": "one rank with nothing to train does not hang or change the others",
    "A7d": "NaN or infinity outside of the mask has no effect",
    "A8a": "the KL estimators stay finite at large gaps",
    "A8b": "every surrogate stays finite at large gaps, gradient included",
    "A8c": "a step with a NaN gradient is skipped and counted; the run ends after several in a row",
    "A9a": "taking LoRA weights for the engine leaves the base bit-identical",
    "A9b": "after a step and a sync the engine is the trained model",
    "A9c": "a quantised base is never merged into",
    "A9d": "the engine gets weights before every rollout",
    "A10a": "adapter, merged and live model agree, and differ from the base",
    "A10b": "an adapter with a missing or unknown key is refused",
    "A10c": "an adapter that never moved is refused when saved as trained",
    "A10d": "a tied head stays tied",
    "A11a": "a run that was stopped anywhere ends with the weights of one that was not",
    "A11b": "after resuming, all remaining steps run",
    "A11c": "resuming a finished run says so, with its own exit code",
    "A11d": "a damaged checkpoint is skipped with a warning, and the one before is used",
    "A11e": "optimizer, schedule, order, random draws, controllers and replay are all restored",
    "A12a": "every prompt is used equally often, and equal rewards give no advantage",
    "A12b": "a group filter keeps or drops whole groups",
    "A12c": "the gold answer stays with its question",
    "A12d": "group and batch sizes that do not divide are refused with the numbers",
    "A13a": "a step reports policy loss, every reward, flat groups and the gradient norm apart",
    "A13b": "flat groups in many steps in a row are warned about once, with the cause",
    "A13c": "the documentation explains a policy loss near zero",
    "A14a": "an empty thought does not make a right format or answer",
    "A14b": "an answer key that cannot be read masks the row out; it never counts as right",
    "A14c": "of several boxes the last one counts",
    "A14d": "an answer inside the thought, or an open thought, does not count",
    "A14e": "each reward is logged by itself",
    "A15a": "expressions that would run for years get a verdict within the deadline",
    "A15b": "verdicts are the same in threads and under asyncio",
    "A15c": "a thousand gradings at once equal the same one by one",
    "A15d": "common pairs of equal and unequal answers",
    "A15e": "a killed worker is replaced",
    "A16a": "a model's own sampling defaults do not reach the rollouts",
    "A16b": "the settings in effect are said, with where they come from",
    "A16c": "nothing but the run's settings decides how evaluation samples",
    "A16d": "several EOS ids all end a completion",
    "A17a": "the ids that were sampled are the ids that are trained",
    "A17b": "ids, masks and log-probabilities have one length",
    "A17c": "tokens of tools are not trained",
    "A17d": "a stop string inside a token leaves text and ids consistent",
    "A18a": "an engine that dies during a sync is named within a time limit",
    "A18b": "an uneven last batch does not hang the ranks",
    "A18c": "an error on one rank ends the others",
    "A18d": "Ctrl-C ends a run cleanly, without a process left behind",
    "A19a": "memory for log-probabilities does not grow with the number of tokens",
    "A19b": "memory does not grow from evaluation to evaluation",
    "A19c": "sleep and wake return to the same memory",
    "A20a": "log-probabilities are those of the row alone, whatever the padding or packing",
    "A20b": "a packed row does not see its neighbours",
    "A20c": "a prompt that is too long is an error, dropped or shortened, as asked, and counted",
    "A20d": "positions restart with every packed row",
    "D1": "the exact tag format is reached by what a model generates after the opened thought",
    "D2": "every tag reward and their sum stay in the stated range, and reach both ends",
    "D3": "no answer is right by substring or by lost punctuation",
    "D4": "both call forms of rewards work; evaluation runs in training; a skipped SFT is loaded",
    "D5": "any system prompt renders to itself; the samples of a group differ",
    "D6": "one grader setting, and gold answers reduced when they are loaded",
    "D7": "the thought tag is removed as a prefix, not as a set of characters",
    "D8": "small updates are not lost: trained weights are float32",
    "D9": "greedy is greedy, stop strings stop, an unknown override is refused",
    "D10": "the last partial batch is trained, and counted in the schedule",
    "D11": "subsets are seeded; folders are made; a short batch has its own denominator",
    "D12": "rollouts are drawn with the weights of their step",
    "D13": "one template gives the same ids in SFT, rollout and evaluation",
    "D14": "three length normalisations give three different losses",
    "D15": "a Countdown expression is parsed, never run as code",
    "D16": "every accuracy has a count, seeds and an interval",
}

LATER: dict[str, str] = {
    "A5e": "needs an engine in bfloat16 on a GPU",
}
"""Probes that need a part which is not there yet, and which part."""

ALSO: dict[str, tuple[str, ...]] = {
    "A5c": (
        "tests/unit/config/test_config_run.py::test_truncated_sampling_needs_a_correction",
        "tests/unit/objectives/test_objectives_formulas.py::"
        "test_e19_truncated_importance_and_kept_mass",
    ),
    "A5d": (
        "tests/unit/objectives/test_objectives_logprobs.py::"
        "test_chunks_equal_the_plain_path_in_value_and_gradient",
    ),
    "A7b": (
        "tests/unit/objectives/test_objectives_formulas.py::test_e10_a_masked_row_leaves_both_sides",
    ),
    "A7d": (
        "tests/unit/objectives/test_objectives_formulas.py::"
        "test_infinity_outside_the_mask_does_not_leak",
    ),
    "A10d": (
        "tests/unit/models/test_models_save.py::test_M170_a_full_model_is_a_hugging_face_folder",
        "tests/unit/models/test_models_export.py::"
        "test_A10a_adapter_merged_and_live_agree_in_a_fresh_process",
    ),
    "A11e": ("tests/integration/test_resume.py::test_a11a_kill_9_and_resume_ends_the_same",),
    "A12d": ("tests/unit/config/test_config_run.py::test_updates_are_whole_groups",),
    "A13b": (
        "tests/unit/tracking/test_tracking_flat_rewards.py::"
        "test_one_warning_after_so_many_flat_steps",
    ),
    "A14a": (
        "tests/unit/rewards/test_rewards_r1_zero.py::"
        "test_A14_answers_only_inside_thinking_do_not_count",
    ),
    "A14b": (
        "tests/unit/rewards/test_rewards_reward.py::test_a_bad_gold_gives_none_and_is_counted",
    ),
    "A14c": ("tests/unit/rewards/test_rewards_r1_zero.py::test_question_only_table",),
    "A14d": (
        "tests/unit/rewards/test_rewards_r1_zero.py::"
        "test_A14_answers_only_inside_thinking_do_not_count",
    ),
    "A16c": (
        "tests/unit/models/test_models_load.py::"
        "test_A16_generation_config_is_neutralised_and_every_eos_id_is_collected",
    ),
    "A18d": (
        "tests/integration/test_resume.py::test_signals_finish_the_step_and_save",
        "tests/unit/grading/test_grading_pool.py::"
        "test_the_death_of_the_parent_leaves_no_process_even_in_the_middle_of_a_bomb",
        "tests/unit/grading/test_grading_places.py::"
        "test_ctrl_c_during_a_batch_ends_promptly_and_leaves_no_process",
    ),
    "D3": (
        "tests/unit/rewards/test_rewards_r1_zero.py::test_false_positives_of_others_stay_wrong",
        "tests/unit/grading/test_grading_number.py::test_not_the_same_number",
    ),
    "D16": ("tests/unit/evaluation/test_evaluation_tables.py::test_accuracy_with_its_interval",),
}
"""Tests that are a probe without carrying its id in their name."""
