{{/* What decides for a pod with several candidates: weights of score plugins in the scheduler's profile. */}}

{{/*
Until 1.21 NodeResourcesFit scores nothing: its least-allocated strategy is a plugin of its own.
A plugin is disabled and enabled again, because the oldest versions refuse to change a weight otherwise.
*/}}
{{- define "gpushare.scorePlugin" -}}
{{- $oldest := eq (include "gpushare.schedulerConfigVersion" (index . 0)) "kubescheduler.config.k8s.io/v1beta1" -}}
{{- if and $oldest (eq (index . 1) "NodeResourcesFit") -}}
NodeResourcesLeastAllocated
{{- else -}}
{{- index . 1 -}}
{{- end -}}
{{- end -}}

{{/*
Name of the burst profile; empty for none. A percentage for each profile exists since Kubernetes 1.26.
The profile stays where the webhook does not set it any more: pods that have its name still wait.
*/}}
{{- define "gpushare.burst" -}}
{{- $scheduler := .Values.scheduler -}}
{{- if and (include "gpushare.second" .) (semverCompare ">=1.26.0-0" (include "gpushare.schedulerVersion" .)) -}}
{{- $scheduler.name }}-burst
{{- end -}}
{{- end -}}

{{/* Number of pending pods above which the webhook sets the burst profile; 0 never. */}}
{{- define "gpushare.burstPods" -}}
{{- if and .Values.webhook.enabled (ne (int .Values.scheduler.percentageOfNodesToScore) 1) -}}
{{- int .Values.scheduler.burstPods -}}
{{- else -}}
0
{{- end -}}
{{- end -}}

{{- define "gpushare.profile" -}}
{{- $root := . -}}
{{- with .Values.scheduler.scoreWeights }}
plugins:
  score:
    disabled:
      {{- range $name, $_ := . }}
      - name: {{ include "gpushare.scorePlugin" (list $root $name) }}
      {{- end }}
    enabled:
      {{- range $name, $weight := . }}
      {{- if $weight }}
      - name: {{ include "gpushare.scorePlugin" (list $root $name) }}
        weight: {{ $weight }}
      {{- end }}
      {{- end }}
{{- end }}
{{- if not .Values.scheduler.defaultTopologySpread }}
pluginConfig:
  # No constraints for pods without any: kube-scheduler's own spread a workload over nodes and zones.
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints: []
{{- end }}
{{- end -}}
