{{/* Where the pods of scheduler, extender and webhook go. */}}

{{/* (list root "scheduler") */}}
{{- define "gpushare.placement" -}}
{{- $root := index . 0 -}}
{{- $scheduler := $root.Values.scheduler -}}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $scheduler.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $scheduler.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $scheduler.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $scheduler.topologySpread }}
topologySpreadConstraints:
  {{- range . }}
  - maxSkew: 1
    topologyKey: {{ .topologyKey }}
    whenUnsatisfiable: {{ .whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "gpushare.selector" $ | nindent 8 }}
    {{- if semverCompare ">=1.27.0-0" $root.Capabilities.KubeVersion.Version }}
    # Only pods of the same template: those that an upgrade replaces are about to leave their nodes.
    matchLabelKeys: [pod-template-hash]
    {{- end }}
  {{- end }}
{{- end }}
{{- end -}}
